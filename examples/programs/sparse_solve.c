/* Solves a sparse linear system by Jacobi's method. Each sweep streams a matrix far larger than
 * the caches and gathers from a vector that lies in the last of them.
 * Usage: sparse_solve THOUSAND_ROWS SWEEPS */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHORTEST = 8, LONGEST = 24 };

static uint64_t state = 1442695040888963407ULL;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Compressed rows: the entries of row i are from starts[i] up to starts[i + 1]. */
struct matrix {
    uint64_t rows;
    uint64_t *starts;
    uint32_t *columns;
    double *values;
    double *diagonal;
};

/* The diagonal outweighs the rest of its row, so that the sweeps converge; the right-hand side is
 * the one to which the answer is 1 everywhere. */
static void fill(const struct matrix *a, double *right)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < a->rows; i++) {
        const uint64_t length = SHORTEST + next_random() % (LONGEST - SHORTEST + 1);
        double sum = 0.0;
        a->starts[i] = at;
        for (uint64_t k = 0; k < length; k++, at++) {
            const uint64_t drawn = next_random();
            a->columns[at] = (uint32_t)((drawn >> 20) % a->rows);
            a->values[at] = (double)(drawn % 1000 + 1) / 1000.0;
            sum += a->values[at];
        }
        a->diagonal[i] = 1.5 * sum;
        right[i] = 2.5 * sum;
    }
    a->starts[a->rows] = at;
}

static void sweep(const struct matrix *a, const double *right, const double *x, double *next)
{
    for (uint64_t i = 0; i < a->rows; i++) {
        double sum = 0.0;
        for (uint64_t k = a->starts[i]; k < a->starts[i + 1]; k++)
            sum += a->values[k] * x[a->columns[k]];
        next[i] = (right[i] - sum) / a->diagonal[i];
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: sparse_solve THOUSAND_ROWS SWEEPS\n");
        return 2;
    }
    const uint64_t rows = strtoull(argv[1], NULL, 10) * 1000;
    const uint64_t sweeps = strtoull(argv[2], NULL, 10);
    const struct matrix a = {
        .rows = rows,
        .starts = malloc((rows + 1) * sizeof(uint64_t)),
        .columns = malloc(rows * LONGEST * sizeof(uint32_t)),
        .values = malloc(rows * LONGEST * sizeof(double)),
        .diagonal = malloc(rows * sizeof(double)),
    };
    double *right = malloc(rows * sizeof *right);
    double *x = calloc(rows, sizeof *x);
    double *next = calloc(rows, sizeof *next);
    if (!rows || !a.starts || !a.columns || !a.values || !a.diagonal || !right || !x || !next) {
        fprintf(stderr, "sparse_solve: not enough memory\n");
        return 1;
    }
    fill(&a, right);
    for (uint64_t i = 0; i < sweeps; i++) {
        sweep(&a, right, x, next);
        double *before = x;
        x = next;
        next = before;
    }
    double worst = 0.0;
    for (uint64_t i = 0; i < rows; i++)
        worst = fmax(worst, fabs(x[i] - 1.0));
    if (worst < 1e-6)
        printf("solved %llu equations\n", (unsigned long long)rows);
    else
        printf("off by %g\n", worst);
    free(next);
    free(x);
    free(right);
    free(a.diagonal);
    free(a.values);
    free(a.columns);
    free(a.starts);
    return 0;
}

/* The triad by the rules of STREAM: a[i] = b[i] + scalar * c[i] over three arrays of doubles, one
 * thread, 24 bytes an element counted, the first pass not counted, the result verified.
 * Usage: triad ELEMENTS SECONDS; prints {"seconds_per_element": ..., "best": ...} */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Not inlined, so that the timed passes cannot be merged into one. */
__attribute__((noinline)) static void triad(double *restrict a, const double *restrict b,
                                            const double *restrict c, double scalar, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        a[i] = b[i] + scalar * c[i];
    __asm__ volatile("" : : "r"(a) : "memory");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: triad ELEMENTS SECONDS\n");
        return 2;
    }
    const uint64_t n = strtoull(argv[1], NULL, 10);
    const double seconds = strtod(argv[2], NULL), scalar = 3.0;
    double *a = NULL, *b = NULL, *c = NULL;
    if (n == 0 || posix_memalign((void **)&a, 64, n * sizeof *a) != 0 ||
        posix_memalign((void **)&b, 64, n * sizeof *b) != 0 ||
        posix_memalign((void **)&c, 64, n * sizeof *c) != 0) {
        fprintf(stderr, "triad: not enough memory\n");
        return 1;
    }
    for (uint64_t i = 0; i < n; i++) {
        a[i] = 1.0;
        b[i] = 2.0;
        c[i] = 0.5;
    }
    triad(a, b, c, scalar, n);
    double spent = 0.0, best = INFINITY;
    uint64_t passes = 0;
    const double start = now();
    do {
        const double before = now();
        triad(a, b, c, scalar, n);
        const double took = now() - before;
        spent += took;
        best = took < best ? took : best;
        passes++;
    } while (now() - start < seconds);
    for (uint64_t i = 0; i < n; i++)
        if (a[i] != 3.5) {
            fprintf(stderr, "triad: a[%llu] is %g, not 3.5\n", (unsigned long long)i, a[i]);
            return 1;
        }
    printf("{\"seconds_per_element\": %.6e, \"best\": %.6e, \"passes\": %llu}\n",
           spent / (double)passes / (double)n, best / (double)n, (unsigned long long)passes);
    free(a);
    free(b);
    free(c);
    return 0;
}

/* stream.*: the four loops of STREAM (McCalpin). Unlike there the sources are never written, so
 * that no value grows however long a load runs. */
#include "multiversion.h"
#include "registry.h"
#include "resources.h"

#include <stdlib.h>

enum mode { COPY, SCALE, ADD, TRIAD };

/* One set of arrays serves all four; it goes with the last of them. */
static struct {
    unsigned users;
    uint64_t elements;
    double *a; /* written */
    double *b; /* read */
    double *c; /* read */
} arrays;

struct stream {
    enum mode mode;
    uint64_t position; /* the next element, from batch to batch */
    uint64_t last_from;
    uint64_t last_count; /* of the elements written last, in one piece */
};

static const double SCALAR = 3.0;

static double source_b(uint64_t i)
{
    return 1.0 + (double)(int)(i & 7);
}

static double source_c(uint64_t i)
{
    return 0.5 + (double)(int)(i & 15);
}

MULTIVERSION
static void fill(double *restrict a, double *restrict b, double *restrict c, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        a[i] = 0;
        b[i] = source_b(i);
        c[i] = source_c(i);
    }
}

enum { PIECE = 8 };
typedef double piece_of_array __attribute__((vector_size(PIECE * sizeof(double)), aligned(sizeof(double))));

/* Written such that no compiler turns it into a call of memcpy(), which has other stores. */
MULTIVERSION
static void copy(double *restrict a, const double *restrict b, uint64_t count)
{
    uint64_t i = 0;

    for (; i + PIECE <= count; i += PIECE) {
        *(piece_of_array *)(a + i) = *(const piece_of_array *)(b + i);
        MEMORY_IS_READ();
    }
    for (; i < count; i++) {
        a[i] = b[i];
        MEMORY_IS_READ();
    }
}

MULTIVERSION
static void scale(double *restrict a, const double *restrict b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        a[i] = SCALAR * b[i];
}

MULTIVERSION
static void add(double *restrict a, const double *restrict b, const double *restrict c, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        a[i] = b[i] + c[i];
}

MULTIVERSION
static void triad(double *restrict a, const double *restrict b, const double *restrict c, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        a[i] = b[i] + SCALAR * c[i];
}

static void apply(enum mode mode, uint64_t from, uint64_t count)
{
    double *a = arrays.a + from;
    const double *b = arrays.b + from;
    const double *c = arrays.c + from;

    switch (mode) {
    case COPY:
        copy(a, b, count);
        break;
    case SCALE:
        scale(a, b, count);
        break;
    case ADD:
        add(a, b, c, count);
        break;
    case TRIAD:
        triad(a, b, c, count);
        break;
    }
}

static double expected(enum mode mode, uint64_t i)
{
    switch (mode) {
    case COPY:
        return source_b(i);
    case SCALE:
        return SCALAR * source_b(i);
    case ADD:
        return source_b(i) + source_c(i);
    case TRIAD:
        return source_b(i) + SCALAR * source_c(i);
    }
    return 0;
}

static uint64_t array_bytes(void)
{
    return arrays.elements * sizeof(double);
}

static int setup(struct instance *self)
{
    struct stream *stream;

    if (arrays.users == 0) {
        double *a;
        arrays.elements = registry_array_elements(self->shared->config);
        a = resources_map(self, 3 * array_bytes());
        if (a == NULL)
            return -1;
        arrays.a = a;
        arrays.b = a + arrays.elements;
        arrays.c = a + 2 * arrays.elements;
        fill(arrays.a, arrays.b, arrays.c, arrays.elements);
    }
    arrays.users++;
    stream = calloc(1, sizeof *stream);
    self->state = stream;
    if (stream == NULL)
        return fail(self, "no memory");
    stream->mode = (enum mode)self->surrogate->variant->mode;
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    struct stream *stream = self->state;

    while (steps > 0) {
        uint64_t left = arrays.elements - stream->position;
        uint64_t count = left < steps ? left : steps;
        apply(stream->mode, stream->position, count);
        MEMORY_IS_READ();
        stream->last_from = stream->position;
        stream->last_count = count;
        stream->position = count == left ? 0 : stream->position + count;
        steps -= count;
    }
    return 0;
}

/* The last elements one by one, and of those before them a sample. */
static int verify(struct instance *self)
{
    enum { EACH = 4096, SAMPLES = 512 };
    const struct stream *stream = self->state;
    const uint64_t end = stream->last_from + stream->last_count;
    const uint64_t step = stream->last_count / SAMPLES + 1;

    for (uint64_t i = stream->last_from; i < end; i += end - i <= EACH ? 1 : step)
        if (arrays.a[i] != expected(stream->mode, i))
            return fail(self, "element %llu is %g instead of %g", (unsigned long long)i, arrays.a[i],
                        expected(stream->mode, i));
    return 0;
}

static void teardown(struct instance *self)
{
    if (arrays.users > 0 && --arrays.users == 0) {
        resources_unmap(arrays.a, 3 * array_bytes());
        arrays.a = NULL;
    }
    free(self->state);
}

#define LOOP(SUFFIX, MODE, ARRAYS, SUITES, SENTENCE) \
    {SUFFIX, SIZE_ARRAYS, ARRAYS, "memory", SUITES, true, MODE, UINT64_C(8) * (ARRAYS), SENTENCE}

static const struct variant variants[] = {
    LOOP("copy", COPY, 2, NOT_QUICK, "STREAM copy, a = b: one read and one write"),
    LOOP("scale", SCALE, 2, NOT_QUICK, "STREAM scale, a = s b: one read, one multiplication, one write"),
    LOOP("add", ADD, 3, NOT_QUICK, "STREAM add, a = b + c: two reads, one addition, one write"),
    LOOP("triad", TRIAD, 3, IN_ALL, "STREAM triad, a = b + s c: two reads, a multiply-add, one write"),
};

const struct microbench stream_microbench = {
    .prefix = "stream",
    .op = "one 8-byte element written",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};

/* memory.streaming.*: reading the set from end to end, again and again. */
#include "chain.h"
#include "line_sum.h"
#include "resources.h"

#include <stdlib.h>

struct stream {
    const char *base;
    uint64_t lines;
    uint64_t position; /* the next line, from batch to batch */
};

static int setup(struct instance *self)
{
    const uint64_t bytes = self->surrogate->size_bytes;
    struct stream *stream;

    if (resources_arena(self, bytes) < 0)
        return -1;
    stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return fail(self, "no memory");
    stream->base = self->shared->arena.base;
    stream->lines = bytes / LINE_BYTES;
    self->state = stream;
    return 0;
}

static int warm(struct instance *self)
{
    line_sum_warm(self, self->shared->arena.base, self->surrogate->size_bytes);
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    struct stream *stream = self->state;
    uint64_t sum = line_sum(stream->base, stream->lines, stream->position, steps);

    SINK(sum);
    stream->position = (stream->position + steps) % stream->lines;
    return 0;
}

/* The fast sum is that of a plain loop, over as many lines as cost no time. */
static int verify(struct instance *self)
{
    enum { CHECKED_LINES = 512 };
    const struct stream *stream = self->state;
    uint64_t expected = 0;

    for (uint64_t i = 0; i < CHECKED_LINES; i++) {
        uint64_t line = (stream->position + i) % stream->lines;
        const uint64_t *words = (const uint64_t *)(const void *)(stream->base + line * LINE_BYTES);
        for (int w = 0; w < LINE_WORDS; w++)
            expected += words[w];
    }
    if (line_sum(stream->base, stream->lines, stream->position, CHECKED_LINES) != expected)
        return fail(self, "the sum of the lines read is wrong");
    return 0;
}

static void teardown(struct instance *self)
{
    free(self->state);
}

#define SIZE(SUFFIX, RULE, BYTES, FAMILY, SUITES, PAPER, SENTENCE) \
    {SUFFIX, RULE, BYTES, FAMILY, SUITES, PAPER, 0, LINE_BYTES, SENTENCE}

static const struct variant variants[] = {
    SIZE("1K", SIZE_ARENA, KIB(1), "cache", NOT_QUICK, true, "Reads 1 KiB in order: the first-level cache"),
    SIZE("1M", SIZE_ARENA, MIB(1), "cache", NOT_QUICK, true, "Reads 1 MiB in order: the second-level cache"),
    SIZE("8M", SIZE_ARENA, MIB(8), "cache", IN_ALL, false, "Reads 8 MiB in order: bandwidth of the last-level cache"),
    SIZE("128M", SIZE_ARENA, MIB(128), "memory", IN_ALL, false, "Reads 128 MiB in order: memory bandwidth"),
    SIZE("1G", SIZE_ARENA, GIB(1), "memory", NOT_QUICK, true, "Reads 1 GiB in order: memory bandwidth"),
    SIZE("L2half", SIZE_L2_HALF, 0, "cache", NOT_QUICK, false, "Reads half the second-level cache in order"),
    SIZE("LLChalf", SIZE_LLC_HALF, 0, "cache", NOT_QUICK, false, "Reads half the last-level cache in order"),
    SIZE("LLCx2", SIZE_LLC_TWICE, 0, "memory", NOT_QUICK, false, "Reads twice the last-level cache in order, or 1 GiB if that is less"),
};

const struct microbench memory_streaming_microbench = {
    .prefix = "memory.streaming",
    .op = "one 64-byte line read",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .warm = warm,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};

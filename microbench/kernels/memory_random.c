/* memory.random.*: dependent loads along a chain through every line of the set. */
#include "chain.h"
#include "clock.h"
#include "line_sum.h"
#include "resources.h"

#include <stdlib.h>

struct chase {
    struct chain chain;
    void **words;    /* the chain's word in line 0 */
    void **position;
    uint32_t from;   /* the rank where the last count began */
    uint64_t loads;  /* since then */
};

#define LOAD position = (void **)*position;
#define LOADS_4 LOAD LOAD LOAD LOAD
#define LOADS_32 LOADS_4 LOADS_4 LOADS_4 LOADS_4 LOADS_4 LOADS_4 LOADS_4 LOADS_4

static void follow(struct chase *chase, uint64_t loads)
{
    void **position = chase->position;

    chase->loads += loads;
    for (; loads >= 32; loads -= 32) {
        LOADS_32
    }
    while (loads-- > 0) {
        LOAD
    }
    SINK(position);
    chase->position = position;
}

static int setup(struct instance *self)
{
    const uint64_t bytes = self->surrogate->size_bytes;
    struct chase *chase;

    if (resources_arena(self, bytes) < 0)
        return -1;
    chase = calloc(1, sizeof *chase);
    if (chase == NULL)
        return fail(self, "no memory");
    self->state = chase;
    chase->chain = chain_of((uint32_t)(bytes / LINE_BYTES));
    chase->words = (void **)(void *)self->shared->arena.base + resources_arena_word(self);
    chain_write(&chase->chain, (void **)(void *)self->shared->arena.base,
                (unsigned)(chase->words - (void **)(void *)self->shared->arena.base));
    chase->position = chase->words;
    chase->from = chain_rank(&chase->chain, 0);
    return 0;
}

/* Brings the set into the caches, then goes along the chain a little: for the translation of
 * addresses, and so that the lines lie where a chase leaves them. */
static int warm(struct instance *self)
{
    enum { SLICE = 1000, SLICES = 20 };
    struct chase *chase = self->state;
    uint32_t slices = chase->chain.lines / SLICE + 1;

    line_sum_warm(self, self->shared->arena.base, self->surrogate->size_bytes);
    for (uint32_t i = 0; i < slices && i < SLICES && (i == 0 || clock_now() < self->warm_until_ns); i++)
        follow(chase, SLICE);
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    follow(self->state, steps);
    return 0;
}

/* Where the chase stands tells how many loads it has really made. */
static int verify(struct instance *self)
{
    struct chase *chase = self->state;
    uint64_t line = (uint64_t)(chase->position - chase->words) / LINE_WORDS;
    uint32_t rank;

    if (line >= chase->chain.lines)
        return fail(self, "the chase has left its set");
    rank = chain_rank(&chase->chain, (uint32_t)line);
    if ((chase->from + chase->loads) % chase->chain.lines != rank)
        return fail(self, "the chase is not where it should be after %llu loads", (unsigned long long)chase->loads);
    chase->from = rank;
    chase->loads = 0;
    return 0;
}

static void teardown(struct instance *self)
{
    free(self->state);
}

#define SIZE(SUFFIX, RULE, BYTES, FAMILY, SUITES, PAPER, SENTENCE) \
    {SUFFIX, RULE, BYTES, FAMILY, SUITES, PAPER, 0, 0, SENTENCE}

static const struct variant variants[] = {
    SIZE("1K", SIZE_ARENA, KIB(1), "cache", NOT_QUICK, true, "Loads in random order from 1 KiB: the first-level cache"),
    SIZE("1M", SIZE_ARENA, MIB(1), "cache", NOT_QUICK, true, "Loads in random order from 1 MiB: the second-level cache"),
    SIZE("8M", SIZE_ARENA, MIB(8), "cache", IN_ALL, false, "Loads in random order from 8 MiB: the last-level cache"),
    SIZE("128M", SIZE_ARENA, MIB(128), "memory", IN_ALL, false, "Loads in random order from 128 MiB: memory latency"),
    SIZE("1G", SIZE_ARENA, GIB(1), "memory", NOT_QUICK, true, "Loads in random order from 1 GiB: memory latency and address translation"),
    SIZE("L2half", SIZE_L2_HALF, 0, "cache", NOT_QUICK, false, "Loads in random order from half the second-level cache"),
    SIZE("LLChalf", SIZE_LLC_HALF, 0, "cache", IN_ALL, false, "Loads in random order from half the last-level cache"),
    SIZE("LLCx2", SIZE_LLC_TWICE, 0, "memory", NOT_QUICK, false, "Loads in random order from twice the last-level cache, or 1 GiB if that is less"),
};

const struct microbench memory_random_microbench = {
    .prefix = "memory.random",
    .op = "one dependent load",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .warm = warm,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};

/* memory.decay.*: coming back to a set that was left alone for a while.
 *
 * A chase that never pauses keeps its set in the cache by using it. A program that comes back to its
 * tables now and then finds there what its neighbours have left. So the whole set is read once, the
 * thread sleeps, and then lines spread over all of the set are read in an order no prefetcher
 * follows. The mode is for how many milliseconds it sleeps. */
#include "chain.h"
#include "clock.h"
#include "line_sum.h"
#include "resources.h"

#include <stdlib.h>

enum { TOUCHES = 16384 }; /* a step; fewer where the set has fewer lines */

struct decay {
    const char *base;
    uint64_t lines;
    uint32_t touches;
    uint64_t sum; /* of the newest step */
    uint32_t touched[TOUCHES];
};

static int setup(struct instance *self)
{
    const uint64_t lines = self->surrogate->size_bytes / LINE_BYTES;
    struct decay *decay;

    if (resources_arena(self, self->surrogate->size_bytes) < 0)
        return -1;
    decay = calloc(1, sizeof *decay);
    if (decay == NULL)
        return fail(self, "no memory");
    self->state = decay;
    decay->base = self->shared->arena.base;
    decay->lines = lines;
    decay->touches = lines < TOUCHES ? (uint32_t)lines : TOUCHES;
    const struct chain order = chain_of((uint32_t)lines);
    for (uint32_t i = 0; i < decay->touches; i++)
        decay->touched[i] = chain_permute(&order, i);
    self->ops_per_step = decay->touches;
    self->max_steps = 1;
    return 0;
}

/* All of the set is as old as the sleep when the clock starts. */
static int refill(struct instance *self)
{
    const struct decay *decay = self->state;
    uint64_t sum = line_sum(decay->base, decay->lines, 0, decay->lines);

    SINK(sum);
    clock_sleep_until(clock_now() + (uint64_t)self->surrogate->variant->mode * NS_PER_MS);
    return 0;
}

static uint64_t touch(const struct decay *decay)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < decay->touches; i++)
        sum += *(const uint64_t *)(const void *)(decay->base + (uint64_t)decay->touched[i] * LINE_BYTES);
    return sum;
}

static int run(struct instance *self, uint64_t steps)
{
    struct decay *decay = self->state;

    for (; steps > 0; steps--) {
        decay->sum = touch(decay);
        SINK(decay->sum);
    }
    return 0;
}

static int verify(struct instance *self)
{
    const struct decay *decay = self->state;

    if (decay->sum != touch(decay))
        return fail(self, "the sum of the lines that were touched is wrong");
    return 0;
}

static void teardown(struct instance *self)
{
    free(self->state);
}

#define AFTER(SUFFIX, RULE, MILLISECONDS, SENTENCE) \
    {SUFFIX, RULE, 0, "cache", SUITE_FULL, false, MILLISECONDS, 0, SENTENCE}

static const struct variant variants[] = {
    AFTER("LLCquarter.1ms", SIZE_LLC_QUARTER, 1, "Loads from a quarter of the last-level cache, left alone for 1 ms"),
    AFTER("LLCquarter.10ms", SIZE_LLC_QUARTER, 10, "Loads from a quarter of the last-level cache, left alone for 10 ms"),
    AFTER("LLCquarter.100ms", SIZE_LLC_QUARTER, 100, "Loads from a quarter of the last-level cache, left alone for 100 ms"),
    AFTER("LLChalf.1ms", SIZE_LLC_HALF, 1, "Loads from half the last-level cache, left alone for 1 ms"),
    AFTER("LLChalf.10ms", SIZE_LLC_HALF, 10, "Loads from half the last-level cache, left alone for 10 ms"),
    AFTER("LLChalf.100ms", SIZE_LLC_HALF, 100, "Loads from half the last-level cache, left alone for 100 ms"),
};

const struct microbench memory_decay_microbench = {
    .prefix = "memory.decay",
    .op = "one load",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .no_inducer_reason = "it sleeps nearly all of the time",
    .setup = setup,
    .refill = refill,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};

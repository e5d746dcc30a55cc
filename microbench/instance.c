#include "instance.h"

#include "clock.h"

#include <string.h>

int instance_setup(struct instance *instance, const struct surrogate *surrogate, struct resources *shared)
{
    *instance = (struct instance){
        .surrogate = surrogate,
        .shared = shared,
        .ops_per_step = 1,
        .max_steps = UINT64_MAX,
        .direct = -1,
        .deadline_ns = UINT64_MAX,
        .warm_until_ns = UINT64_MAX,
    };
    return surrogate->kernel->setup(instance);
}

void instance_teardown(struct instance *instance)
{
    if (instance->surrogate != NULL)
        instance->surrogate->kernel->teardown(instance);
    instance->surrogate = NULL;
}

uint64_t batch_steps_next(uint64_t steps, uint64_t took_ns, uint64_t want_ns)
{
    double factor = took_ns > 0 ? (double)want_ns / (double)took_ns : 10;

    /* Within these bounds a batch is long enough to be timed and short enough to stop in time. */
    if (factor > 0.5 && factor < 1)
        return steps;
    if (factor > 10)
        factor = 10;
    if (factor < 0.5)
        factor = 0.5; /* it may have been held up by something that does not come again soon */
    double next = (double)steps * (factor >= 1 ? factor * 1.2 : factor);
    if (next < 1)
        return 1;
    return next < 1e15 ? (uint64_t)next : (uint64_t)1e15;
}

/* Without the refill: gives what the batch took. */
static int run_batch(struct instance *instance, uint64_t steps, uint64_t *took_ns)
{
    uint64_t start = clock_now();

    if (instance->surrogate->kernel->run(instance, steps) < 0)
        return -1;
    *took_ns = clock_now() - start;
    return 0;
}

static int refill(struct instance *instance)
{
    const struct microbench *kernel = instance->surrogate->kernel;

    return kernel->refill != NULL ? kernel->refill(instance) : 0;
}

static uint64_t steps_now(const struct instance *instance)
{
    return instance->batch_steps < instance->max_steps ? instance->batch_steps : instance->max_steps;
}

/* Finds how many steps make a batch, in a few batches that do not count. */
static int calibrate(struct instance *instance, uint64_t batch_ns)
{
    enum { ATTEMPTS = 20 };

    instance->batch_steps = 1;
    for (int i = 0; i < ATTEMPTS; i++) {
        uint64_t took;
        if (refill(instance) < 0)
            return -1;
        if (instance->max_steps == 1)
            return 0;
        uint64_t steps = steps_now(instance);
        if (run_batch(instance, steps, &took) < 0)
            return -1;
        uint64_t next = batch_steps_next(steps, took, batch_ns);
        if (next <= instance->batch_steps)
            return 0;
        instance->batch_steps = next;
    }
    return 0;
}

int instance_batch(struct instance *instance, uint64_t batch_ns, double *ops)
{
    uint64_t took;

    if (instance->batch_steps == 0)
        instance->batch_steps = 1;
    if (refill(instance) < 0)
        return -1;
    uint64_t steps = steps_now(instance);
    if (run_batch(instance, steps, &took) < 0)
        return -1;
    *ops = (double)steps * instance->ops_per_step;
    /* A batch that a refill cut short says little about how long the next should be. */
    if (steps == instance->batch_steps)
        instance->batch_steps = batch_steps_next(steps, took, batch_ns);
    return 0;
}

/* When the chunk ends, as far as it has come. */
static uint64_t end_of_chunk(const struct plan_of_chunk *plan, const struct chunk *chunk, double whole_ops)
{
    if (plan->whole_op_ns > plan->length_ns && chunk->batches.ops < whole_ops)
        return chunk->start_ns + plan->whole_op_ns;
    return chunk->start_ns + plan->length_ns;
}

int instance_measure(struct instance *instance, const struct plan_of_chunk *plan, struct chunk *chunk)
{
    const struct microbench *kernel = instance->surrogate->kernel;
    const double whole_ops = (double)kernel->whole_ops * 0.999999; /* sums of pieces are not exact */
    int result = -1;

    batches_init(&chunk->batches);
    chunk->start_ns = clock_now();
    instance->warm_until_ns = chunk->start_ns + plan->length_ns / 3;
    instance->deadline_ns = end_of_chunk(plan, chunk, whole_ops);
    if (kernel->warm != NULL && kernel->warm(instance) < 0)
        goto rest;
    if (instance->batch_steps == 0 && calibrate(instance, plan->batch_ns) < 0)
        goto rest;
    for (;;) {
        uint64_t took;
        if (refill(instance) < 0)
            goto rest;
        uint64_t steps = steps_now(instance);
        if (run_batch(instance, steps, &took) < 0)
            goto rest;
        batches_add(&chunk->batches, (double)steps * instance->ops_per_step, kernel->self_timed ? instance->own_ns : took);
        if (steps == instance->batch_steps)
            instance->batch_steps = batch_steps_next(steps, took, plan->batch_ns);
        /* A batch that would end more than half of itself too late is not begun. */
        if (clock_now() + took / 2 >= end_of_chunk(plan, chunk, whole_ops))
            break;
    }
    chunk->end_ns = clock_now();
    chunk->partial = chunk->batches.ops < whole_ops;
    result = kernel->verify != NULL ? kernel->verify(instance) : 0;
rest:
    if (kernel->rest != NULL && kernel->rest(instance) < 0)
        result = -1;
    return result;
}

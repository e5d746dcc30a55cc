/* A surrogate in this process: set up, run in batches, torn down. */
#ifndef KONGMING_INSTANCE_H
#define KONGMING_INSTANCE_H

#include "batches.h"
#include "microbench.h"

/* -1 with a sentence in instance->error; instance_teardown() is due either way. */
int instance_setup(struct instance *instance, const struct surrogate *surrogate, struct resources *shared);
void instance_teardown(struct instance *instance);

struct plan_of_chunk {
    uint64_t length_ns;   /* all in all: warm-up, refills and batches */
    uint64_t batch_ns;    /* what one batch should last at least */
    uint64_t whole_op_ns; /* 0, or within which a chunk goes on until one operation is whole */
};

struct chunk {
    uint64_t start_ns;
    uint64_t end_ns;
    bool partial;
    struct batches batches;
};

/* Warms up, then times batch after batch until the time is over: one at least. -1 with a sentence in
 * instance->error. */
int instance_measure(struct instance *instance, const struct plan_of_chunk *plan, struct chunk *chunk);

/* One batch of about so many nanoseconds, refilled before: what inducers are made of. Gives the
 * operations done. */
int instance_batch(struct instance *instance, uint64_t batch_ns, double *ops);

/* How many steps the next batch should have, when `steps` took `took_ns` and `want_ns` are wanted. */
uint64_t batch_steps_next(uint64_t steps, uint64_t took_ns, uint64_t want_ns);

#endif

/* A second thread on the same CPU, for kernels that need two. */
#ifndef KONGMING_PARTNER_H
#define KONGMING_PARTNER_H

#include "microbench.h"

#include <pthread.h>
#include <sched.h>

struct partner {
    bool started;
    pthread_t thread;
    cpu_set_t allowed; /* what this thread may run on otherwise */
};

/* Starts the thread. 0, or fail(). */
int partner_start(struct partner *partner, struct instance *self, void *(*body)(void *), void *argument);

/* Waits for its end, which the caller has brought about. */
void partner_join(struct partner *partner);

/* Binds both to the CPU that this thread is on now; and lets this one go again. 0, or fail(). */
int partner_gather(struct partner *partner, struct instance *self);
int partner_part(struct partner *partner, struct instance *self);

#endif

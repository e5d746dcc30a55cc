#include "partner.h"

#include <string.h>

int partner_start(struct partner *partner, struct instance *self, void *(*body)(void *), void *argument)
{
    int error = pthread_create(&partner->thread, NULL, body, argument);

    if (error != 0)
        return fail(self, "no second thread: %s", strerror(error));
    partner->started = true;
    return 0;
}

void partner_join(struct partner *partner)
{
    if (partner->started)
        pthread_join(partner->thread, NULL);
    partner->started = false;
}

int partner_gather(struct partner *partner, struct instance *self)
{
    cpu_set_t here;
    int cpu = sched_getcpu();
    int error = pthread_getaffinity_np(pthread_self(), sizeof partner->allowed, &partner->allowed);

    CPU_ZERO(&here);
    CPU_SET((size_t)cpu, &here);
    if (error == 0)
        error = pthread_setaffinity_np(partner->thread, sizeof here, &here);
    if (error == 0)
        error = pthread_setaffinity_np(pthread_self(), sizeof here, &here);
    return error == 0 ? 0 : fail(self, "two threads cannot be bound to CPU %d: %s", cpu, strerror(error));
}

int partner_part(struct partner *partner, struct instance *self)
{
    int error = pthread_setaffinity_np(pthread_self(), sizeof partner->allowed, &partner->allowed);

    return error == 0 ? 0 : fail(self, "a thread cannot be unbound: %s", strerror(error));
}

/* One process that makes load. */
#ifndef KONGMING_WORKER_H
#define KONGMING_WORKER_H

#include "registry.h"

#include <stdatomic.h>
#include <sys/types.h>

/* What a worker tells, in memory that the supervisor sees even when the worker has been killed. */
struct worker_report {
    _Atomic uint64_t start_ns;      /* of the load; 0: not begun */
    _Atomic uint64_t busy_ns;       /* at work, until busy_since_ns if that is not 0 */
    _Atomic uint64_t busy_since_ns; /* 0: at rest */
    _Atomic double ops;
    char error[320]; /* one sentence, before it exits with a failure */
};

struct worker_order {
    const struct config *config;
    const struct surrogate *surrogate;
    double intensity;
    pid_t supervisor;
    int lifeline;         /* breaks when the supervisor is gone */
    int ready_fd;         /* a byte is written to it when all is set up */
    int go_fd;            /* reaches its end when the load is to begin */
    struct worker_report *report;
};

/* Of a process that was forked for it; does not return. */
_Noreturn void worker_main(const struct worker_order *order);

#endif

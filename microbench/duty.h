/* The duty cycle of an inducer: when it works and when it rests. Arithmetic only. */
#ifndef KONGMING_DUTY_H
#define KONGMING_DUTY_H

#include <stdint.h>

/* Short next to what a program notices, long next to the operations that it is made of. */
#define DUTY_PERIOD_NS UINT64_C(20000000)

struct duty {
    double share;
    uint64_t since_ns; /* from here on, the first work, work and time are compared */
    uint64_t busy_ns;  /* worked since then */
};

/* Gives when to begin: with half a rest, so that after whole periods the share is right. */
uint64_t duty_init(struct duty *duty, double share, uint64_t now_ns);

/* How long to work now. */
uint64_t duty_work(const struct duty *duty);

/* After so much more work: until when to rest. Not later than now: go on at once. */
uint64_t duty_rest_until(struct duty *duty, uint64_t worked_ns, uint64_t now_ns);

#endif

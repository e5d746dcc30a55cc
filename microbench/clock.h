/* CLOCK_MONOTONIC in nanoseconds. */
#ifndef KONGMING_CLOCK_H
#define KONGMING_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

static inline uint64_t clock_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* The smallest step that the clock is seen to make, the cost of reading it included. */
uint64_t clock_granularity(void);

/* Sleeps until that time of the clock, however often it is interrupted. */
void clock_sleep_until(uint64_t when_ns);

/* Seconds (not negative, at most a year) as nanoseconds. */
uint64_t clock_from_seconds(double seconds);

#endif

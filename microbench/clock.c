#include "clock.h"

#include <errno.h>

uint64_t clock_granularity(void)
{
    enum { STEPS = 100 };
    uint64_t smallest = UINT64_MAX;

    for (int i = 0; i < STEPS; i++) {
        uint64_t before = clock_now();
        uint64_t after;
        do
            after = clock_now();
        while (after == before);
        if (after - before < smallest)
            smallest = after - before;
    }
    return smallest;
}

void clock_sleep_until(uint64_t when_ns)
{
    struct timespec t = {.tv_sec = (time_t)(when_ns / NS_PER_S), .tv_nsec = (long)(when_ns % NS_PER_S)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

uint64_t clock_from_seconds(double seconds)
{
    const double year = 366.0 * 86400.0;

    if (!(seconds > 0))
        return 0;
    return (uint64_t)((seconds < year ? seconds : year) * 1e9);
}

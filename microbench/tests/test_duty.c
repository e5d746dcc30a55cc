#include "check.h"
#include "duty.h"

#include <math.h>
#include <stdbool.h>

/* An inducer whose work is made of pieces of that length, whose rests last a little too long. */
static double simulate(double share, uint64_t piece_ns, uint64_t oversleep_ns, unsigned periods)
{
    uint64_t now = 1000;
    const uint64_t start = now;
    const uint64_t end = start + periods * DUTY_PERIOD_NS;
    uint64_t busy = 0;
    struct duty duty;

    now = duty_init(&duty, share, now);
    while (now < end) {
        uint64_t worked = 0;
        while (worked == 0 || worked + piece_ns / 2 < duty_work(&duty))
            worked += piece_ns;
        now += worked;
        busy += worked;
        uint64_t until = duty_rest_until(&duty, worked, now);
        if (until > now)
            now = until + oversleep_ns;
    }
    return (double)busy / (double)(now - start);
}

static bool near(double value, double share)
{
    return fabs(value / share - 1) < 0.05;
}

/* Work held up for a second is not made up for. */
static void check_debt_is_bounded(void)
{
    struct duty duty;
    uint64_t now = 0;
    uint64_t busy = 0;

    duty_init(&duty, 0.5, now);
    now += 1000 * DUTY_PERIOD_NS;
    while (now < 1010 * DUTY_PERIOD_NS) {
        uint64_t work = duty_work(&duty);
        now += work;
        busy += work;
        uint64_t until = duty_rest_until(&duty, work, now);
        if (until > now)
            now = until;
    }
    CHECK(busy < 7 * DUTY_PERIOD_NS);
}

int main(void)
{
    static const double shares[] = {0.01, 0.1, 0.2, 0.5, 0.8, 0.95};

    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        CHECK(near(simulate(shares[i], 1000, 0, 10), shares[i]));
        CHECK(near(simulate(shares[i], 100000, 60000, 10), shares[i]));
        CHECK(near(simulate(shares[i], 3000000, 60000, 1000), shares[i]));
        CHECK(near(simulate(shares[i], 100000000, 60000, 10000), shares[i])); /* pieces longer than a period */
    }
    CHECK(simulate(1, 1000, 0, 10) == 1);
    check_debt_is_bounded();
    return checks_result();
}

#include "duty.h"

/* Work that is owed, because a rest lasted too long, is made up for to this extent; and so no
 * inducer that was held up for a second works through the next. */
static const uint64_t MOST_OWED_NS = 2 * DUTY_PERIOD_NS;

uint64_t duty_init(struct duty *duty, double share, uint64_t now_ns)
{
    uint64_t half_a_rest = (uint64_t)((1 - share) * (double)DUTY_PERIOD_NS / 2);

    *duty = (struct duty){.share = share, .since_ns = now_ns + half_a_rest};
    return duty->since_ns;
}

uint64_t duty_work(const struct duty *duty)
{
    return (uint64_t)(duty->share * (double)DUTY_PERIOD_NS);
}

uint64_t duty_rest_until(struct duty *duty, uint64_t worked_ns, uint64_t now_ns)
{
    double due; /* when so much work is the share of all time */

    duty->busy_ns += worked_ns;
    if (duty->share >= 1)
        return now_ns;
    due = (double)duty->busy_ns / duty->share;
    uint64_t until = duty->since_ns + (uint64_t)due;
    if (now_ns > until && now_ns - until > MOST_OWED_NS) {
        duty->since_ns = now_ns - MOST_OWED_NS;
        duty->busy_ns = 0;
        until = duty->since_ns;
    }
    return until;
}

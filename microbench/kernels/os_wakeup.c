/* os.wakeup: how late a thread runs again after its timer has expired. */
#include "clock.h"
#include "microbench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

static const uint64_t SLEEP_NS = 50 * NS_PER_US;

struct timer {
    int fd;
};

static int setup(struct instance *self)
{
    struct timer *timer = calloc(1, sizeof *timer);

    self->state = timer;
    if (timer == NULL)
        return fail(self, "no memory");
    /* Not clock_nanosleep(), to which the kernel adds a slack. */
    timer->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    if (timer->fd < 0)
        return fail(self, "no timer: %s", strerror(errno));
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    const struct timer *timer = self->state;

    self->own_ns = 0;
    for (; steps > 0; steps--) {
        uint64_t expirations;
        uint64_t when = clock_now() + SLEEP_NS;
        struct itimerspec setting = {
            .it_value = {.tv_sec = (time_t)(when / NS_PER_S), .tv_nsec = (long)(when % NS_PER_S)}};
        if (timerfd_settime(timer->fd, TFD_TIMER_ABSTIME, &setting, NULL) < 0 ||
            read(timer->fd, &expirations, sizeof expirations) != (ssize_t)sizeof expirations)
            return fail(self, "the timer does not work: %s", strerror(errno));
        uint64_t now = clock_now();
        if (now < when)
            return fail(self, "a timer expired too early");
        self->own_ns += now - when;
    }
    return 0;
}

static void teardown(struct instance *self)
{
    struct timer *timer = self->state;

    if (timer != NULL && timer->fd >= 0)
        close(timer->fd);
    free(timer);
}

static const struct variant variants[] = {
    {"wakeup", SIZE_NONE, 0, "os", IN_ALL, false, 0, 0, "How late a sleeping thread runs after its timer has expired"},
};

const struct microbench os_wakeup_microbench = {
    .prefix = "os",
    .op = "one wake-up by a timer",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .no_inducer_reason = "it waits for a timer: run again and again it leaves the machine idle",
    .self_timed = true,
    .setup = setup,
    .run = run,
    .teardown = teardown,
};

#include "worker.h"

#include "clock.h"
#include "commands.h"
#include "duty.h"
#include "instance.h"
#include "resources.h"
#include "watcher.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const uint64_t LONGEST_BATCH_NS = 1 * NS_PER_MS;
enum { BATCHES_IN_WORK = 8 }; /* at least, so that the work ends when it should */

static struct resources resources;
static struct instance instance;

static void clean_up(void *argument)
{
    (void)argument;
    scratch_folder_remove(&resources.folder);
}

_Noreturn static void end(int status)
{
    watcher_stand_down();
    instance_teardown(&instance);
    resources_release(&resources);
    _exit(status);
}

_Noreturn static void end_with_error(struct worker_report *report)
{
    memcpy(report->error, instance.error, sizeof report->error);
    end(EXIT_FAILED);
}

/* Works, in batches, for so long. Gives what it took. */
static int work(struct worker_report *report, uint64_t work_ns, uint64_t batch_ns, uint64_t *took_ns)
{
    uint64_t start = clock_now();
    uint64_t now = start;
    uint64_t busy = atomic_load(&report->busy_ns);
    double done = atomic_load(&report->ops);

    uint64_t last = 0;

    /* A batch that would end more than half of itself too late is not begun: the rest is measured
     * by what was done. */
    while (last == 0 || now - start + last / 2 < work_ns) {
        double ops;
        atomic_store(&report->busy_since_ns, now);
        instance.deadline_ns = start + work_ns;
        if (instance_batch(&instance, batch_ns, &ops) < 0)
            return -1;
        uint64_t after = clock_now();
        last = after - now;
        busy += last;
        done += ops;
        now = after;
        atomic_store(&report->busy_since_ns, 0);
        atomic_store(&report->busy_ns, busy);
        atomic_store(&report->ops, done);
    }
    *took_ns = now - start;
    return 0;
}

static int make_load(const struct worker_order *order)
{
    struct duty duty;
    uint64_t now = clock_now();
    uint64_t batch_ns;
    uint64_t until = duty_init(&duty, order->intensity, now);

    batch_ns = duty_work(&duty) / BATCHES_IN_WORK;
    if (batch_ns > LONGEST_BATCH_NS)
        batch_ns = LONGEST_BATCH_NS;
    atomic_store(&order->report->start_ns, now);
    for (;;) {
        uint64_t took;
        if (until > now)
            clock_sleep_until(until);
        if (work(order->report, duty_work(&duty), batch_ns, &took) < 0)
            return -1;
        now = clock_now();
        until = duty_rest_until(&duty, took, now);
    }
}

_Noreturn void worker_main(const struct worker_order *order)
{
    static struct watch watch;
    const struct microbench *kernel = order->surrogate->kernel;
    char byte = 'r';

    /* The lifeline does the same; but this works on a process that cannot see it. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    resources_init(&resources, order->config);
    resources.own_io_file = true;
    watch = (struct watch){
        .lifeline = order->lifeline,
        .ignore_interrupt = true,
        .exit_status = EXIT_OK,
        .clean_up = clean_up,
    };
    if (watcher_start(&watch) < 0) {
        snprintf(order->report->error, sizeof order->report->error, "cannot start: %s", strerror(errno));
        _exit(EXIT_FAILED);
    }
    if (getppid() != order->supervisor)
        end(EXIT_FAILED);
    if (instance_setup(&instance, order->surrogate, &resources) < 0)
        end_with_error(order->report);
    instance.warm_until_ns = clock_now() + NS_PER_S;
    /* No single operation should last longer than the work of a period, if it can be in pieces. */
    instance.deadline_ns = clock_now() + (uint64_t)(2 * order->intensity * (double)DUTY_PERIOD_NS);
    if (kernel->warm != NULL && kernel->warm(&instance) < 0)
        end_with_error(order->report);
    if (write(order->ready_fd, &byte, 1) != 1)
        end(EXIT_FAILED);
    while (read(order->go_fd, &byte, 1) < 0 && errno == EINTR)
        ;
    make_load(order);
    end_with_error(order->report);
}

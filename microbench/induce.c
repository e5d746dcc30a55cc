/* induce: supervises processes that make load, sees that none is left, and tells what they did. */
#include "clock.h"
#include "commands.h"
#include "json.h"
#include "registry.h"
#include "scratch_folder.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] = "Usage: kongming-microbench induce [OPTION]... NAME\n"
                           "\n"
                           "Runs a surrogate as load until it is told to stop.\n"
                           "\n" SHARED_OPTIONS_HELP
                           "  --intensity X            share of the time at work, more than 0 to 1 (default 1)\n"
                           "  --copies N               so many processes (default 1)\n"
                           "  --seconds S              stop after so long\n";

enum { MOST_COPIES = 1024 };
static const uint64_t GRACE_NS = 2 * NS_PER_S; /* for workers to clean up, before they are killed */

struct supervisor {
    struct config config;
    struct suite_of_node suite;
    const struct surrogate *surrogate;
    double intensity;
    uint64_t seconds_ns; /* 0: until told */
    size_t count;        /* workers that were forked */
    size_t alive;
    pid_t pids[MOST_COPIES];
    bool gone[MOST_COPIES];
    struct worker_report *reports;
    int signals_fd;
    int lifeline[2]; /* pipes, read end first */
    int ready[2];
    int go[2];
    uint64_t ready_ns;
    double cpu_s;
    char error[512]; /* of the first worker that failed */
};

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static double seconds_of(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

/* Takes note of the workers that have ended. `expected`: they were told to. */
static void reap(struct supervisor *s, bool expected)
{
    for (size_t i = 0; i < s->count; i++) {
        struct rusage usage;
        int status;

        if (s->gone[i] || wait4(s->pids[i], &status, WNOHANG, &usage) != s->pids[i])
            continue;
        s->gone[i] = true;
        s->alive--;
        s->cpu_s += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
        if (expected || s->error[0] != '\0')
            continue;
        if (s->reports[i].error[0] != '\0')
            snprintf(s->error, sizeof s->error, "%.*s", (int)sizeof s->reports[i].error, s->reports[i].error);
        else if (WIFSIGNALED(status))
            snprintf(s->error, sizeof s->error, "process %d that made the load was killed by signal %d", (int)s->pids[i],
                     WTERMSIG(status));
        else
            snprintf(s->error, sizeof s->error, "process %d that made the load ended by itself", (int)s->pids[i]);
    }
}

static int prepare(struct supervisor *s)
{
    sigset_t signals;
    size_t bytes = s->config.copies * sizeof *s->reports;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    /* A lifeline is better: this signal comes when the thread ends that started us, not only when
     * its process does. */
    if (s->config.lifeline < 0)
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    s->signals_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signals_fd < 0 || pipe2(s->lifeline, O_CLOEXEC) < 0 || pipe2(s->ready, O_CLOEXEC) < 0 ||
        pipe2(s->go, O_CLOEXEC) < 0)
        return -1;
    s->reports = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return s->reports != MAP_FAILED ? 0 : -1;
}

static int fork_workers(struct supervisor *s)
{
    struct worker_order order = {
        .config = &s->config,
        .surrogate = s->surrogate,
        .intensity = s->intensity,
        .supervisor = getpid(),
        .lifeline = s->lifeline[0],
        .ready_fd = s->ready[1],
        .go_fd = s->go[0],
    };

    for (size_t i = 0; i < s->config.copies; i++) {
        order.report = &s->reports[i];
        s->pids[i] = fork();
        if (s->pids[i] < 0)
            return -1;
        if (s->pids[i] == 0) {
            close_end(&s->signals_fd);
            close_end(&s->lifeline[1]); /* or the lifeline would never break */
            close_end(&s->ready[0]);
            close_end(&s->go[1]);
            worker_main(&order);
        }
        s->count++;
        s->alive++;
    }
    close_end(&s->lifeline[0]);
    close_end(&s->ready[1]);
    close_end(&s->go[0]);
    return 0;
}

enum event { NOTHING, TOLD_TO_STOP, WORKERS_READY, WORKER_GONE };

static bool lifeline_broken(int fd)
{
    char byte;
    ssize_t got = read(fd, &byte, 1);

    return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
}

/* Of the signals that have come, what matters. */
static enum event read_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    enum event event = NOTHING;

    while (read(s->signals_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD)
            return TOLD_TO_STOP;
        event = WORKER_GONE;
    }
    return event;
}

static int milliseconds_until(uint64_t when_ns)
{
    uint64_t now = clock_now();

    if (when_ns == 0)
        return -1;
    if (when_ns <= now)
        return 0;
    uint64_t left = (when_ns - now + NS_PER_MS - 1) / NS_PER_MS;
    return left < 1000000 ? (int)left : 1000000;
}

/* Waits for what comes first; NOTHING when it is that time. */
static enum event wait_for_event(struct supervisor *s, uint64_t until_ns, size_t *ready)
{
    struct pollfd fds[3] = {{.fd = s->signals_fd, .events = POLLIN},
                            {.fd = s->config.lifeline, .events = POLLIN},
                            {.fd = s->ready[0], .events = POLLIN}};

    for (;;) {
        int count = poll(fds, 3, milliseconds_until(until_ns));
        if (count == 0 && milliseconds_until(until_ns) == 0)
            return NOTHING;
        if (count <= 0)
            continue;
        if (fds[0].revents != 0) {
            enum event event = read_signals(s);
            if (event != NOTHING)
                return event;
        }
        if (fds[1].revents != 0 && lifeline_broken(s->config.lifeline))
            return TOLD_TO_STOP;
        if (fds[2].revents != 0) {
            char bytes[64];
            ssize_t got = read(s->ready[0], bytes, sizeof bytes);
            if (got > 0)
                *ready += (size_t)got;
            if (*ready == s->count || got == 0) {
                close_end(&s->ready[0]);
                fds[2].fd = -1;
            }
            if (*ready == s->count)
                return WORKERS_READY;
        }
    }
}

static int tell_ready(const struct supervisor *s)
{
    struct json line;

    json_begin(&line);
    json_string(&line, "event", "ready");
    json_array_begin(&line, "pids");
    for (size_t i = 0; i < s->count; i++)
        json_signed(&line, NULL, s->pids[i]);
    json_array_end(&line);
    return json_end(&line);
}

static int tell_error(const struct supervisor *s)
{
    struct json line;

    json_begin(&line);
    json_string(&line, "event", "error");
    json_string(&line, "name", s->surrogate->name);
    json_string(&line, "error", s->error);
    return json_end(&line);
}

struct account {
    double duty;
    double ops;
    double elapsed_s;
};

/* What the workers have done up to now, of which the last batch may not be over. */
static struct account account_of(const struct supervisor *s, uint64_t now_ns)
{
    struct account account = {0, 0, 0};

    for (size_t i = 0; i < s->count; i++) {
        const struct worker_report *report = &s->reports[i];
        uint64_t start = atomic_load(&report->start_ns);
        uint64_t since = atomic_load(&report->busy_since_ns);
        uint64_t busy = atomic_load(&report->busy_ns);
        if (start == 0 || start >= now_ns)
            continue;
        if (since != 0 && since < now_ns)
            busy += now_ns - since;
        account.duty += (double)busy / (double)(now_ns - start) / (double)s->count;
        account.ops += atomic_load(&report->ops);
    }
    if (s->ready_ns != 0)
        account.elapsed_s = (double)(now_ns - s->ready_ns) * 1e-9;
    return account;
}

static int tell_end(const struct supervisor *s, const struct account *account)
{
    struct json line;

    json_begin(&line);
    json_string(&line, "event", "end");
    json_double(&line, "duty", account->duty);
    json_double(&line, "ops", account->ops);
    json_double(&line, "elapsed_s", account->elapsed_s);
    json_double(&line, "cpu_s", s->cpu_s);
    return json_end(&line);
}

static void signal_workers(const struct supervisor *s, int signal_number)
{
    for (size_t i = 0; i < s->count; i++)
        if (!s->gone[i])
            kill(s->pids[i], signal_number);
}

static void end_workers(struct supervisor *s)
{
    uint64_t give_up = clock_now() + GRACE_NS;

    signal_workers(s, SIGTERM);
    for (;;) {
        size_t ignored = 0;
        reap(s, true);
        if (s->alive == 0)
            break;
        if (wait_for_event(s, give_up, &ignored) == NOTHING) {
            signal_workers(s, SIGKILL);
            give_up = clock_now() + GRACE_NS;
        }
    }
    /* A worker that was killed could not remove its files. */
    scratch_folder_sweep(s->config.dir);
}

/* Until it is to end: false if that is because something went wrong. */
static bool supervise(struct supervisor *s)
{
    uint64_t until = 0;
    size_t ready = 0;

    for (;;) {
        switch (wait_for_event(s, until, &ready)) {
        case NOTHING:
        case TOLD_TO_STOP:
            return true;
        case WORKERS_READY:
            s->ready_ns = clock_now();
            if (tell_ready(s) < 0)
                return true; /* nobody listens, thus nobody wants it */
            if (s->seconds_ns != 0)
                until = s->ready_ns + s->seconds_ns;
            close_end(&s->go[1]);
            break;
        case WORKER_GONE:
            reap(s, false);
            if (s->alive < s->count)
                return false;
            break;
        }
    }
}

static int induce(struct supervisor *s)
{
    struct account account;
    bool well = false;

    if (prepare(s) < 0 || fork_workers(s) < 0)
        snprintf(s->error, sizeof s->error, "cannot start processes: %s", strerror(errno));
    else
        well = supervise(s);
    account = account_of(s, clock_now());
    end_workers(s);
    if (!well) {
        tell_error(s);
        return EXIT_FAILED;
    }
    tell_end(s, &account);
    return EXIT_OK;
}

enum { OPTION_INTENSITY = OPTION_OWN, OPTION_COPIES, OPTION_SECONDS };

static int parse(struct supervisor *s, int argc, char **argv)
{
    static const struct option options[] = {SHARED_OPTIONS,
                                            {"intensity", required_argument, NULL, OPTION_INTENSITY},
                                            {"copies", required_argument, NULL, OPTION_COPIES},
                                            {"seconds", required_argument, NULL, OPTION_SECONDS},
                                            {NULL, 0, NULL, 0}};
    int value;

    while ((value = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        double seconds = 0;
        uint64_t copies = 1;
        int wrong = 0;
        switch (value) {
        case 'h':
            fputs(help, stdout);
            return 1;
        case OPTION_INTENSITY:
            wrong = option_share("intensity", optarg, &s->intensity);
            break;
        case OPTION_COPIES:
            wrong = option_unsigned("copies", optarg, 1, MOST_COPIES, &copies);
            s->config.copies = (unsigned)copies;
            break;
        case OPTION_SECONDS:
            wrong = option_seconds("seconds", optarg, &seconds);
            s->seconds_ns = clock_from_seconds(seconds);
            break;
        default:
            wrong = option_shared(&s->config, value, optarg);
        }
        if (wrong)
            return -1;
    }
    if (argc - optind != 1) {
        fprintf(stderr, "kongming-microbench induce: takes the name of one surrogate. Got %d instead.\n", argc - optind);
        return -1;
    }
    registry_resolve(&s->config, &s->suite);
    s->surrogate = registry_find(&s->suite, argv[optind]);
    if (s->surrogate == NULL) {
        registry_explain_unknown(&s->suite, argv[optind]);
        return -1;
    }
    if (s->surrogate->kernel->no_inducer_reason != NULL) {
        fprintf(stderr, "kongming-microbench induce: '%s' makes no load: %s\n", argv[optind],
                s->surrogate->kernel->no_inducer_reason);
        return -1;
    }
    return s->config.cpu >= 0 ? pin_to_cpu(s->config.cpu) : 0;
}

int cmd_induce(int argc, char **argv)
{
    static struct supervisor s;
    int parsed;

    s.config = CONFIG_DEFAULTS;
    s.intensity = 1;
    s.signals_fd = -1;
    s.lifeline[0] = s.lifeline[1] = s.ready[0] = s.ready[1] = s.go[0] = s.go[1] = -1;
    parsed = parse(&s, argc, argv);
    if (parsed != 0)
        return parsed < 0 ? EXIT_USAGE : EXIT_OK;
    return induce(&s);
}

/*
 * exec: run a command under supervision, time it, and leave nothing of it behind.
 *
 *   guard       the process that the caller knows; forwards signals, waits for the supervisor
 *   supervisor  starts, times and reaps the command, in a session of its own
 *   command     a session and process group of its own, in its cgroups, pinned
 *
 * Guard and supervisor are both child subreapers and watch each other: whichever is killed -9,
 * the other one inherits all descendants, daemons with a session of their own included, and ends
 * them. The caller's death is seen as EOF on the lifeline.
 *
 * Signals are blocked throughout and read from a signalfd, so that there are no handlers and no
 * window in which one could be missed.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "commands.h"
#include "exec_children.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_CGROUPS 16

struct options {
    cpu_set_t cpus;
    bool pinned;
    bool loop;
    int64_t timeout_ns; /* NEVER: none */
    int64_t pause_ns;
    int lifeline, report; /* -1: none */
    const char *cgroups[MAX_CGROUPS];
    int cgroup_count;
    char **command;
};

enum step { STEP_STARTED = 0, STEP_CGROUP, STEP_AFFINITY, STEP_STDIN, STEP_EXEC };

/* The child tells through a pipe that closes on exec: when it starts, or why it cannot. */
struct launch {
    int64_t start_ns;
    int step, error;
};

/* ---- reporting ------------------------------------------------------------------------- */

/* One line in one write. Does not block for ever on a reader that has stopped reading. */
static void report(struct watch *w, const struct options *o, const char *line, size_t length)
{
    if (o->report < 0)
        return;
    for (int64_t patience = NEVER;;) {
        int saw = exec_wait_event(w, o->report, POLLOUT, patience, NULL);
        if (saw & SAW_EXTRA)
            break;
        if (saw & SAW_TIMEOUT)
            return;
        if (w->stopping && patience == NEVER)
            patience = exec_now_ns() + SECOND_NS / 10;
    }
    if (write(o->report, line, length) < 0 && errno == EPIPE)
        w->stopping = true; /* nobody listens any more */
}

static void escape(char *out, size_t size, const char *text)
{
    size_t used = 0;
    for (; *text != '\0' && used + 7 < size; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            used += (size_t)snprintf(out + used, size - used, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            used += (size_t)snprintf(out + used, size - used, "\\u%04x", c);
        else
            out[used++] = (char)c;
    }
    out[used] = '\0';
}

static void explain(const struct options *o, const struct iteration *it, char *out, size_t size)
{
    const char *name = o->command[0], *why = strerror(it->failed_errno);
    switch (it->failed_step) {
    case STEP_AFFINITY:
        snprintf(out, size, "The command cannot be pinned to the CPUs asked for: %s.", why);
        break;
    case STEP_CGROUP:
        snprintf(out, size, "The command cannot enter its cgroup: %s.", why);
        break;
    case STEP_STDIN:
        snprintf(out, size, "/dev/null cannot be opened: %s.", why);
        break;
    default:
        if (it->failed_errno == ENOENT && strchr(name, '/') != NULL && access(name, F_OK) == 0)
            snprintf(out, size, "The interpreter that %.200s names was not found.", name);
        else if (it->failed_errno == ENOENT)
            snprintf(out, size, "The command %.200s was not found.", name);
        else
            snprintf(out, size, "The command %.200s cannot be run: %s.", name, why);
    }
}

static void report_started(struct watch *w, const struct options *o, const struct iteration *it)
{
    char line[160];
    int n = snprintf(line, sizeof line,
                     "{\"event\":\"started\",\"pid\":%d,\"start_ns\":%" PRId64 "}\n", (int)it->pid,
                     it->start_ns);
    report(w, o, line, (size_t)n);
}

static void report_iteration(struct watch *w, const struct options *o, const struct iteration *it,
                             long index)
{
    char line[4096], code[16] = "null", number[16] = "null", error[1024] = "null";
    const struct usage *u = &it->usage;
    if (it->failed_errno != 0) {
        char text[400], escaped[1000];
        explain(o, it, text, sizeof text);
        if (o->report < 0)
            exec_complain(text); /* else the report has it */
        escape(escaped, sizeof escaped, text);
        snprintf(error, sizeof error, "\"%s\"", escaped);
        if (it->failed_step == STEP_EXEC)
            snprintf(code, sizeof code, "%d", it->failed_errno == ENOENT ? 127 : 126);
    } else if (it->ended && WIFEXITED(it->status)) {
        snprintf(code, sizeof code, "%d", WEXITSTATUS(it->status));
    } else if (it->ended && WIFSIGNALED(it->status)) {
        snprintf(number, sizeof number, "%d", WTERMSIG(it->status));
    }
    int n = snprintf(
        line, sizeof line,
        "{\"event\":\"iteration\",\"index\":%ld,\"start_ns\":%" PRId64 ",\"end_ns\":%" PRId64
        ",\"wall_s\":%.9f,\"exit_status\":%s,\"signal\":%s,\"timed_out\":%s,\"interrupted\":%s"
        ",\"cpu_s\":%.6f,\"page_faults\":%ld,\"major_faults\":%ld,\"voluntary_switches\":%ld"
        ",\"involuntary_switches\":%ld,\"read_bytes\":%" PRId64 ",\"written_bytes\":%" PRId64
        ",\"io_source\":\"%s\",\"max_rss_bytes\":%" PRId64 ",\"error\":%s}\n",
        index, it->start_ns, it->end_ns, (double)(it->end_ns - it->start_ns) * 1e-9, code, number,
        it->timed_out ? "true" : "false", it->interrupted ? "true" : "false", u->cpu_s,
        u->page_faults, u->major_faults, u->voluntary, u->involuntary, u->read_bytes,
        u->written_bytes, u->io_from_rusage ? "rusage" : "proc", u->max_rss_bytes, error);
    report(w, o, line, (size_t)n);
}

/* ---- the command ----------------------------------------------------------------------- */

static _Noreturn void fail_launch(int pipe_fd, enum step step)
{
    struct launch message = {.start_ns = 0, .step = (int)step, .error = errno};
    ssize_t sent = write(pipe_fd, &message, sizeof message);
    _exit(sent == (ssize_t)sizeof message ? 127 : 126);
}

static _Noreturn void become_command(const struct options *o, int pipe_fd, pid_t supervisor)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor)
        _exit(127); /* it died before the line above */
    for (int i = 0; i < o->cgroup_count; i++) {
        int fd = open(o->cgroups[i], O_WRONLY | O_CLOEXEC);
        if (fd < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
            fail_launch(pipe_fd, STEP_CGROUP);
        close(fd);
    }
    /* After its cgroups: before Linux 6.2, a group with CPUs of its own replaces the affinity. */
    if (o->pinned && sched_setaffinity(0, sizeof o->cpus, &o->cpus) < 0)
        fail_launch(pipe_fd, STEP_AFFINITY);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0)
        fail_launch(pipe_fd, STEP_STDIN);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Timed from here: neither the fork nor entering a cgroup (which can take milliseconds)
     * is the command's own. */
    struct launch message = {.start_ns = exec_now_ns(), .step = STEP_STARTED, .error = 0};
    if (write(pipe_fd, &message, sizeof message) != (ssize_t)sizeof message)
        _exit(126);
    execvp(o->command[0], o->command);
    fail_launch(pipe_fd, STEP_EXEC);
}

/* Reads what the child told; returns false at the end of its messages. */
static bool hear_launch(int pipe_fd, struct iteration *it)
{
    struct launch message;
    ssize_t got = read(pipe_fd, &message, sizeof message);
    if (got != (ssize_t)sizeof message)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    if (message.step == STEP_STARTED) {
        it->start_ns = message.start_ns;
    } else {
        it->failed_step = message.step;
        it->failed_errno = message.error;
    }
    return true;
}

/* Runs the command once, from start to the end of all that it left behind. */
static bool run_once(struct watch *w, const struct options *o, long index, struct iteration *it)
{
    int ends[2];
    memset(it, 0, sizeof *it);
    if (pipe2(ends, O_CLOEXEC) < 0) {
        exec_complain("no pipe can be made.");
        return false;
    }
    pid_t supervisor = getpid();
    it->start_ns = exec_now_ns();
    it->pid = fork();
    if (it->pid < 0) {
        exec_complain("no process can be started.");
        close(ends[0]);
        close(ends[1]);
        return false;
    }
    if (it->pid == 0)
        become_command(o, ends[1], supervisor);
    close(ends[1]);

    int launching = ends[0];
    int64_t deadline = o->timeout_ns == NEVER ? NEVER : it->start_ns + o->timeout_ns;
    for (;;) {
        /* Before each wait, not only after SIGCHLD: reporting may have read that signal. */
        exec_reap(it);
        if (it->ended || w->stopping)
            break;
        int saw = exec_wait_event(w, launching, POLLIN, deadline, NULL);
        if ((saw & SAW_EXTRA) && !hear_launch(launching, it)) {
            close(launching);
            launching = -1;
            if (it->failed_errno == 0)
                report_started(w, o, it);
        }
        if (saw & SAW_TIMEOUT) {
            it->timed_out = true;
            break;
        }
    }
    if (launching >= 0) { /* it was over before its start was heard */
        while (!it->timed_out && !w->stopping && hear_launch(launching, it))
            ;
        close(launching);
        if (it->failed_errno == 0)
            report_started(w, o, it);
    }
    it->interrupted = !it->ended && !it->timed_out;
    exec_end_all(w, it);
    if (!it->ended)
        it->end_ns = exec_now_ns();
    report_iteration(w, o, it, index);
    return it->failed_errno == 0;
}

static int supervise(const struct options *o, int tether)
{
    struct watch w;
    setsid(); /* a kill of the guard's group must not take both */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!exec_open_watch(&w, o->lifeline, tether)) {
        exec_complain("no signalfd can be made.");
        return EXIT_FAILED;
    }
    for (long index = 0; !w.stopping; index++) {
        struct iteration it;
        if (!run_once(&w, o, index, &it))
            return EXIT_FAILED;
        bool good = it.ended && WIFEXITED(it.status) && WEXITSTATUS(it.status) == 0;
        if (!o->loop || !good || it.timed_out)
            break;
        int64_t resume = exec_now_ns() + o->pause_ns;
        while (o->pause_ns > 0 && !w.stopping && exec_now_ns() < resume)
            exec_wait_event(&w, -1, 0, resume, NULL);
    }
    return EXIT_OK;
}

/* Waits for the supervisor, hands signals on, and ends what is left should it be killed. */
static int guard(pid_t supervisor)
{
    struct watch w;
    struct iteration none = {.ended = true};
    if (!exec_open_watch(&w, -1, -1)) {
        kill(supervisor, SIGTERM);
        return EXIT_FAILED;
    }
    for (;;) {
        int number = 0, status;
        int saw = exec_wait_event(&w, -1, 0, NEVER, &number);
        if (number != 0)
            kill(supervisor, number);
        if ((saw & SAW_CHILD) && waitpid(supervisor, &status, WNOHANG) == supervisor) {
            exec_end_all(&w, &none);
            if (WIFEXITED(status))
                return WEXITSTATUS(status);
            exec_complain("the supervisor was killed; the command was ended.");
            return EXIT_FAILED;
        }
    }
}

/* ---- options --------------------------------------------------------------------------- */

static const char USAGE[] =
    "usage: kongming-microbench exec [--cpus LIST] [--timeout S] [--lifeline FD] [--report FD]\n"
    "                                [--loop] [--pause S] [--cgroup PATH]... -- COMMAND [ARG]...\n"
    "Runs COMMAND in a session of its own, times it, and ends all that it leaves behind.\n"
    "  --cpus LIST    pin it to these CPUs, e.g. 0-1,3\n"
    "  --timeout S    end it after S seconds\n"
    "  --lifeline FD  end it when FD reads end of file\n"
    "  --report FD    write a JSON line per start and per end to FD\n"
    "  --loop         again and again, until it fails or SIGTERM comes\n"
    "  --pause S      between two iterations of a loop\n"
    "  --cgroup PATH  a cgroup.procs or tasks file to enter first\n";

static bool parse_cpus(const char *text, cpu_set_t *set)
{
    CPU_ZERO(set);
    for (const char *p = text;;) {
        char *end;
        if (!isdigit((unsigned char)*p))
            return false;
        long first = strtol(p, &end, 10), last = first;
        if (*end == '-') {
            if (!isdigit((unsigned char)end[1]))
                return false;
            last = strtol(end + 1, &end, 10);
        }
        if (first > last || last >= CPU_SETSIZE)
            return false;
        for (long cpu = first; cpu <= last; cpu++)
            CPU_SET((size_t)cpu, set);
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        p = end + 1;
    }
}

static bool parse_seconds(const char *text, int64_t *ns)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0.0) || value > 1e9)
        return false;
    *ns = (int64_t)(value * 1e9);
    return true;
}

/* An open descriptor, kept from the command. */
static bool parse_fd(const char *text, int *fd)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 0 || value > 1 << 20)
        return false;
    *fd = (int)value;
    return value <= STDERR_FILENO ? fcntl(*fd, F_GETFD) >= 0
                                  : fcntl(*fd, F_SETFD, FD_CLOEXEC) == 0;
}

static int usage_error(const char *option, const char *found, const char *allowed)
{
    fprintf(stderr, "kongming-microbench exec: %s %s is not valid; allowed: %s.\n", option, found,
            allowed);
    return EXIT_USAGE;
}

static int parse(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"cpus", required_argument, NULL, 'c'},     {"timeout", required_argument, NULL, 't'},
        {"lifeline", required_argument, NULL, 'l'}, {"report", required_argument, NULL, 'r'},
        {"loop", no_argument, NULL, 'L'},           {"pause", required_argument, NULL, 'p'},
        {"cgroup", required_argument, NULL, 'g'},   {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    *o = (struct options){.timeout_ns = NEVER, .lifeline = -1, .report = -1};
    optind = 1;
    for (int key; (key = getopt_long(argc, argv, "+h", known, NULL)) != -1;) {
        switch (key) {
        case 'c':
            if (!parse_cpus(optarg, &o->cpus))
                return usage_error("--cpus", optarg, "CPU numbers and ranges such as 0-1,3");
            o->pinned = true;
            break;
        case 't':
            if (!parse_seconds(optarg, &o->timeout_ns) || o->timeout_ns == 0)
                return usage_error("--timeout", optarg, "seconds above 0");
            break;
        case 'p':
            if (!parse_seconds(optarg, &o->pause_ns))
                return usage_error("--pause", optarg, "seconds from 0");
            break;
        case 'l':
            if (!parse_fd(optarg, &o->lifeline))
                return usage_error("--lifeline", optarg, "an open file descriptor");
            break;
        case 'r':
            if (!parse_fd(optarg, &o->report))
                return usage_error("--report", optarg, "an open file descriptor");
            break;
        case 'g':
            if (o->cgroup_count == MAX_CGROUPS)
                return usage_error("--cgroup", optarg, "at most 16 of them");
            o->cgroups[o->cgroup_count++] = optarg;
            break;
        case 'L':
            o->loop = true;
            break;
        case 'h':
            fputs(USAGE, stdout);
            return -1;
        default:
            fputs(USAGE, stderr);
            return EXIT_USAGE;
        }
    }
    if (optind >= argc) {
        exec_complain("there is no command to run.");
        fputs(USAGE, stderr);
        return EXIT_USAGE;
    }
    o->command = argv + optind;
    return EXIT_OK;
}

int cmd_exec(int argc, char **argv)
{
    struct options o;
    int ends[2];
    int wrong = parse(argc, argv, &o);
    if (wrong != EXIT_OK)
        return wrong < 0 ? EXIT_OK : wrong;
    exec_block_signals();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe2(ends, O_CLOEXEC) < 0) {
        exec_complain("no pipe can be made.");
        return EXIT_FAILED;
    }
    fflush(NULL);
    pid_t supervisor = fork();
    if (supervisor < 0) {
        exec_complain("no process can be started.");
        return EXIT_FAILED;
    }
    if (supervisor == 0) {
        close(ends[1]);
        /* _exit: what main registered with atexit belongs to the guard. */
        _exit(supervise(&o, ends[0]));
    }
    close(ends[0]);
    return guard(supervisor);
}

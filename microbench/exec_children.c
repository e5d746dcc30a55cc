#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "exec_children.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GRACE_NS (SECOND_NS / 5)       /* between SIGTERM and SIGKILL */
#define KILL_AGAIN_NS (SECOND_NS / 50) /* a fork may slip between the scan and the signal */
#define GIVE_UP_NS (5 * SECOND_NS)     /* a process stuck in the kernel dies when it comes out */

int64_t exec_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

void exec_complain(const char *text)
{
    fprintf(stderr, "kongming-microbench exec: %s\n", text);
}

/* ---- processes ------------------------------------------------------------------------- */

struct process {
    pid_t pid, parent;
    bool ours;
};

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const struct process *)a)->pid, y = ((const struct process *)b)->pid;
    return (x > y) - (x < y);
}

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return -1;
    text[got] = '\0';
    /* The name may hold anything, a closing parenthesis too: the fields follow the last one. */
    const char *end = strrchr(text, ')');
    /* ") S 1234 ...": the state is one letter. */
    if (end == NULL || strlen(end) < sizeof ") S 1" - 1)
        return -1;
    return (pid_t)strtol(end + sizeof ") S " - 1, NULL, 10);
}

/* All processes of the system, sorted by pid; the caller frees. */
static struct process *snapshot(size_t *count)
{
    struct process *all = NULL;
    size_t room = 0;
    *count = 0;
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return NULL;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        pid_t parent = parent_of(pid);
        if (parent < 0)
            continue;
        if (*count == room) {
            size_t larger = room ? room * 2 : 256;
            struct process *moved = realloc(all, larger * sizeof *all);
            if (moved == NULL)
                break;
            all = moved;
            room = larger;
        }
        all[(*count)++] = (struct process){.pid = pid, .parent = parent, .ours = false};
    }
    closedir(proc);
    if (all != NULL)
        qsort(all, *count, sizeof *all, by_pid);
    return all;
}

static void signal_descendants(pid_t group, int number)
{
    if (group > 0)
        kill(-group, number); /* works without /proc as well */
    size_t count;
    struct process *all = snapshot(&count);
    pid_t self = getpid();
    for (bool found = true; found;) {
        found = false;
        for (size_t i = 0; i < count; i++) {
            if (all[i].ours)
                continue;
            struct process key = {.pid = all[i].parent};
            const struct process *parent = bsearch(&key, all, count, sizeof *all, by_pid);
            if (all[i].parent == self || (parent != NULL && parent->ours))
                found = all[i].ours = true;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (all[i].ours)
            kill(all[i].pid, number);
    free(all);
}

/* A line of /proc/PID/io: false if it is another key's. */
static bool take_bytes(const char *line, const char *key, int64_t *bytes)
{
    size_t length = strlen(key);

    if (strncmp(line, key, length) != 0)
        return false;
    *bytes = strtoll(line + length, NULL, 10);
    return true;
}

/* The bytes that went to and came from devices; the process must not have been reaped yet. */
static bool read_io(pid_t pid, int64_t *read_bytes, int64_t *written_bytes)
{
    char path[64], line[128];
    bool have_read = false, have_written = false;
    snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    while (fgets(line, sizeof line, file) != NULL) {
        have_read = take_bytes(line, "read_bytes: ", read_bytes) || have_read;
        have_written = take_bytes(line, "write_bytes: ", written_bytes) || have_written;
    }
    fclose(file);
    return have_read && have_written;
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec * 1e-6;
}

static void add_usage(struct usage *total, const struct rusage *one, bool have_io,
                      int64_t read_bytes, int64_t written_bytes)
{
    if (!have_io) {
        total->io_from_rusage = true;
        read_bytes = (int64_t)one->ru_inblock * 512;
        written_bytes = (int64_t)one->ru_oublock * 512;
    }
    total->cpu_s += seconds(one->ru_utime) + seconds(one->ru_stime);
    total->page_faults += one->ru_minflt;
    total->major_faults += one->ru_majflt;
    total->voluntary += one->ru_nvcsw;
    total->involuntary += one->ru_nivcsw;
    total->read_bytes += read_bytes;
    total->written_bytes += written_bytes;
    if ((int64_t)one->ru_maxrss * 1024 > total->max_rss_bytes)
        total->max_rss_bytes = (int64_t)one->ru_maxrss * 1024;
}

bool exec_reap(struct iteration *it)
{
    for (;;) {
        siginfo_t info;
        memset(&info, 0, sizeof info);
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
            if (errno == EINTR)
                continue;
            return false;
        }
        if (info.si_pid == 0)
            return true;
        int64_t seen_ns = exec_now_ns();
        int64_t read_bytes = 0, written_bytes = 0;
        bool have_io = read_io(info.si_pid, &read_bytes, &written_bytes);
        struct rusage usage;
        int status;
        if (wait4(info.si_pid, &status, 0, &usage) < 0)
            continue;
        /* What outlives the command is not part of what was timed. */
        if (!it->ended)
            add_usage(&it->usage, &usage, have_io, read_bytes, written_bytes);
        if (info.si_pid == it->pid) {
            it->ended = true;
            it->status = status;
            it->end_ns = seen_ns;
        }
    }
}

/* ---- waiting --------------------------------------------------------------------------- */

bool exec_open_watch(struct watch *w, int lifeline, int tether)
{
    sigset_t set;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD, 0}; *s; s++)
        sigaddset(&set, *s);
    *w = (struct watch){.lifeline = lifeline, .tether = tether, .stopping = false};
    w->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return w->signals >= 0;
}

void exec_block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGCHLD, 0}; *s; s++) {
        sigaddset(&set, *s);
        signal(*s, SIG_DFL); /* an inherited SIG_IGN would keep them from the signalfd */
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

static bool at_eof(struct pollfd *p)
{
    char nothing[64];
    if (p->fd < 0 || p->revents == 0)
        return false;
    ssize_t got = read(p->fd, nothing, sizeof nothing);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

int exec_wait_event(struct watch *w, int extra, short events, int64_t deadline_ns,
                      int *last_signal)
{
    struct pollfd fds[4] = {{w->signals, POLLIN, 0},
                            {w->lifeline, POLLIN, 0},
                            {w->tether, POLLIN, 0},
                            {extra, events, 0}};
    int64_t left = deadline_ns == NEVER ? 0 : deadline_ns - exec_now_ns();
    if (left < 0)
        left = 0;
    struct timespec t = {(time_t)(left / SECOND_NS), (long)(left % SECOND_NS)};
    int ready = ppoll(fds, 4, deadline_ns == NEVER ? NULL : &t, NULL);
    if (ready == 0)
        return SAW_TIMEOUT;
    if (ready < 0)
        return 0;
    int saw = 0;
    for (struct signalfd_siginfo info; read(w->signals, &info, sizeof info) == sizeof info;) {
        if (info.ssi_signo == SIGCHLD) {
            saw |= SAW_CHILD;
        } else {
            w->stopping = true;
            if (last_signal != NULL)
                *last_signal = (int)info.ssi_signo;
        }
    }
    if (at_eof(&fds[1])) {
        w->stopping = true;
        w->lifeline = -1;
    }
    if (at_eof(&fds[2])) {
        w->stopping = true;
        w->tether = -1;
    }
    if (fds[3].revents != 0)
        saw |= SAW_EXTRA;
    return saw;
}

bool exec_end_all(struct watch *w, struct iteration *it)
{
    if (!exec_reap(it))
        return true;
    signal_descendants(it->pid, SIGTERM);
    signal_descendants(it->pid, SIGCONT);
    int64_t begun = exec_now_ns();
    while (exec_now_ns() < begun + GRACE_NS) {
        exec_wait_event(w, -1, 0, begun + GRACE_NS, NULL);
        if (!exec_reap(it))
            return true;
    }
    while (exec_now_ns() < begun + GRACE_NS + GIVE_UP_NS) {
        signal_descendants(it->pid, SIGKILL);
        int64_t again = exec_now_ns() + KILL_AGAIN_NS;
        while (exec_now_ns() < again) {
            exec_wait_event(w, -1, 0, again, NULL);
            if (!exec_reap(it))
                return true;
        }
    }
    exec_complain("a process of the command cannot be killed yet: the kernel holds it.");
    return false;
}

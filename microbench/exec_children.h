/* The children of exec: waiting for them, what they used, and ending all that they started. */
#ifndef KONGMING_EXEC_CHILDREN_H
#define KONGMING_EXEC_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SECOND_NS INT64_C(1000000000)
#define NEVER INT64_MAX

/* What the supervisor listens to. */
struct watch {
    int signals, lifeline, tether; /* tether: EOF when the guard has gone */
    bool stopping;
};

enum { SAW_CHILD = 1, SAW_EXTRA = 2, SAW_TIMEOUT = 4 };

struct usage {
    double cpu_s;
    long page_faults, major_faults, voluntary, involuntary;
    int64_t read_bytes, written_bytes, max_rss_bytes;
    bool io_from_rusage; /* /proc/PID/io could not be read for at least one process */
};

struct iteration {
    pid_t pid;
    bool ended, timed_out, interrupted;
    int status;
    int64_t start_ns, end_ns;
    struct usage usage;
    int failed_errno; /* of the step that came before the command ran */
    int failed_step;
};

/* CLOCK_MONOTONIC. */
int64_t exec_now_ns(void);

/* One sentence on stderr. */
void exec_complain(const char *text);

/* Blocks the signals that open_watch reads, for this process and those that it forks. */
void exec_block_signals(void);

/* A descriptor may be -1: then it is not listened to. False when no signalfd can be made. */
bool exec_open_watch(struct watch *w, int lifeline, int tether);

/* Waits for a signal, EOF of lifeline or tether, an event on ``extra``, or the deadline; returns
 * SAW_ bits. ``last_signal`` (may be NULL) is set by a signal that asks to stop. */
int exec_wait_event(struct watch *w, int extra, short events, int64_t deadline_ns,
                    int *last_signal);

/* Reaps everything that has ended. True while there are children left. */
bool exec_reap(struct iteration *it);

/* Ends all descendants: SIGTERM, a short grace, then SIGKILL until nothing is left. */
bool exec_end_all(struct watch *w, struct iteration *it);

#endif

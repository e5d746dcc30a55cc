/* The thread that ends this process in good order: on SIGTERM or SIGINT, or when its lifeline
 * breaks. */
#ifndef KONGMING_WATCHER_H
#define KONGMING_WATCHER_H

#include <stdbool.h>

struct watch {
    int lifeline;          /* -1: none */
    bool ignore_interrupt; /* Ctrl-C is for somebody else to see to */
    int exit_status;       /* of a process that is told to end */
    void (*clean_up)(void *argument);
    void *argument;
};

/* Blocks the signals that it waits for. Call before any other thread is started; `watch` must stay.
 * -1 with errno. */
int watcher_start(const struct watch *watch);

/* From here on the process ends in its own way: what the watcher sees later does nothing. Waits for
 * a clean-up that has begun, which does not return. */
void watcher_stand_down(void);

#endif

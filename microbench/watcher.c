#include "watcher.h"

#include "microbench.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/signalfd.h>
#include <unistd.h>

static atomic_bool told_to_stop;
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;
static int signals_fd = -1;

bool stopping(void)
{
    return atomic_load_explicit(&told_to_stop, memory_order_relaxed);
}

static bool lifeline_broken(int fd)
{
    char byte;
    ssize_t got = read(fd, &byte, 1);

    return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
}

static void wait_for_the_end(const struct watch *watch)
{
    struct pollfd fds[2] = {{.fd = signals_fd, .events = POLLIN}, {.fd = watch->lifeline, .events = POLLIN}};

    for (;;) {
        if (poll(fds, 2, -1) <= 0)
            continue;
        if (fds[0].revents != 0)
            return;
        if (fds[1].revents != 0 && lifeline_broken(watch->lifeline))
            return;
    }
}

static void *watch_thread(void *argument)
{
    const struct watch *watch = argument;

    wait_for_the_end(watch);
    pthread_mutex_lock(&ending);
    atomic_store(&told_to_stop, true);
    if (watch->clean_up != NULL)
        watch->clean_up(watch->argument);
    _exit(watch->exit_status);
}

int watcher_start(const struct watch *watch)
{
    pthread_t thread;
    sigset_t signals;
    int error;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    if (!watch->ignore_interrupt)
        sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (watch->ignore_interrupt)
        signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    signals_fd = signalfd(-1, &signals, SFD_CLOEXEC);
    if (signals_fd < 0)
        return -1;
    error = pthread_create(&thread, NULL, watch_thread, (void *)(uintptr_t)watch);
    if (error != 0) {
        errno = error;
        return -1;
    }
    pthread_detach(thread);
    return 0;
}

void watcher_stand_down(void)
{
    pthread_mutex_lock(&ending);
}

/* net.loopback: a small message through TCP to another thread of the same CPU and back. */
#include "partner.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 64 };

struct connection {
    int near;
    int far;
    uint64_t serial;
    struct partner partner;
};

static int exchange_all(int fd, char *message, int sending)
{
    size_t done = 0;

    while (done < MESSAGE_BYTES) {
        ssize_t n = sending ? send(fd, message + done, MESSAGE_BYTES - done, MSG_NOSIGNAL)
                            : recv(fd, message + done, MESSAGE_BYTES - done, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

static void *echo(void *argument)
{
    const struct connection *c = argument;
    char message[MESSAGE_BYTES];

    while (exchange_all(c->far, message, 0) == 0 && exchange_all(c->far, message, 1) == 0)
        ;
    return NULL;
}

static int connect_to_self(struct connection *c)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    const int on = 1;
    int result = -1;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (listener < 0)
        return -1;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) < 0)
        goto out;
    c->near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->near < 0 || connect(c->near, (struct sockaddr *)&address, sizeof address) < 0)
        goto out;
    c->far = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (c->far < 0)
        goto out;
    if (setsockopt(c->near, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
        setsockopt(c->far, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0)
        result = 0;
out:
    close(listener);
    return result;
}

static int setup(struct instance *self)
{
    struct connection *c = calloc(1, sizeof *c);

    self->state = c;
    if (c == NULL)
        return fail(self, "no memory");
    c->near = c->far = -1;
    if (connect_to_self(c) < 0)
        return fail(self, "no connection to 127.0.0.1: %s", strerror(errno));
    return partner_start(&c->partner, self, echo, c);
}

static int warm(struct instance *self)
{
    struct connection *c = self->state;

    return partner_gather(&c->partner, self);
}

static int run(struct instance *self, uint64_t steps)
{
    struct connection *c = self->state;
    char message[MESSAGE_BYTES] = {0};

    for (; steps > 0; steps--) {
        uint64_t answer;
        c->serial++;
        memcpy(message, &c->serial, sizeof c->serial);
        if (exchange_all(c->near, message, 1) < 0 || exchange_all(c->near, message, 0) < 0)
            return fail(self, "the connection broke: %s", strerror(errno));
        memcpy(&answer, message, sizeof answer);
        if (answer != c->serial)
            return fail(self, "another message came back");
    }
    return 0;
}

static int rest(struct instance *self)
{
    struct connection *c = self->state;

    return partner_part(&c->partner, self);
}

static void teardown(struct instance *self)
{
    struct connection *c = self->state;

    if (c == NULL)
        return;
    if (c->near >= 0)
        shutdown(c->near, SHUT_RDWR); /* the other thread reads the end and returns */
    partner_join(&c->partner);
    if (c->far >= 0)
        close(c->far);
    if (c->near >= 0)
        close(c->near);
    free(c);
}

static const struct variant variants[] = {
    {"loopback", SIZE_NONE, 0, "network", NOT_QUICK, false, 0, 0,
     "64 bytes through TCP on 127.0.0.1 to another thread on the same CPU, and back"},
};

const struct microbench net_loopback_microbench = {
    .prefix = "net",
    .op = "one round trip of 64 bytes",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .warm = warm,
    .run = run,
    .rest = rest,
    .teardown = teardown,
};

/* os.switch: a byte to another thread of the same CPU and back through two pipes, which takes two
 * switches between them. */
#include "partner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ping_pong {
    int there[2]; /* pipes, read end first */
    int back[2];
    unsigned char next;
    struct partner partner;
};

static void *echo(void *argument)
{
    const struct ping_pong *p = argument;
    char byte;

    while (read(p->there[0], &byte, 1) == 1)
        if (write(p->back[1], &byte, 1) != 1)
            break;
    return NULL;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int setup(struct instance *self)
{
    struct ping_pong *p = calloc(1, sizeof *p);

    self->state = p;
    if (p == NULL)
        return fail(self, "no memory");
    p->there[0] = p->there[1] = p->back[0] = p->back[1] = -1;
    if (pipe2(p->there, O_CLOEXEC) < 0 || pipe2(p->back, O_CLOEXEC) < 0)
        return fail(self, "no pipe: %s", strerror(errno));
    return partner_start(&p->partner, self, echo, p);
}

static int warm(struct instance *self)
{
    struct ping_pong *p = self->state;

    return partner_gather(&p->partner, self);
}

static int run(struct instance *self, uint64_t steps)
{
    struct ping_pong *p = self->state;

    for (; steps > 0; steps--) {
        unsigned char byte = p->next++;
        if (write(p->there[1], &byte, 1) != 1 || read(p->back[0], &byte, 1) != 1)
            return fail(self, "the pipe broke: %s", strerror(errno));
        if ((unsigned char)(byte + 1) != p->next)
            return fail(self, "another byte came back through the pipe");
    }
    return 0;
}

static int rest(struct instance *self)
{
    struct ping_pong *p = self->state;

    return partner_part(&p->partner, self);
}

static void teardown(struct instance *self)
{
    struct ping_pong *p = self->state;

    if (p == NULL)
        return;
    close_end(&p->there[1]); /* the other thread reads the end and returns */
    partner_join(&p->partner);
    close_end(&p->there[0]);
    close_end(&p->back[0]);
    close_end(&p->back[1]);
    free(p);
}

static const struct variant variants[] = {
    {"switch", SIZE_NONE, 0, "os", IN_ALL, false, 0, 0, "A byte to another thread on the same CPU and back, through pipes"},
};

const struct microbench os_switch_microbench = {
    .prefix = "os",
    .op = "one round trip, two context switches",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .warm = warm,
    .run = run,
    .rest = rest,
    .teardown = teardown,
};

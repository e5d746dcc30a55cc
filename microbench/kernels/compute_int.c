/* compute.int: integer arithmetic in registers, one chain of which each step waits for the one
 * before, and six that fill the rest of the core: what a thread on the same core takes away shows. */
#include "microbench.h"

#include <stdlib.h>

enum { CHAINS = 6 };

struct registers {
    uint64_t waiting;
    uint64_t chain[CHAINS];
};

/* The value stays in a register of its own: no vector of several. */
#define OPAQUE(x) __asm__ volatile("" : "+r"(x))

static const uint64_t FACTOR = UINT64_C(0x5851f42d4c957f2d);

static void mix(struct registers *r, uint64_t steps)
{
    uint64_t w = r->waiting;
    uint64_t a = r->chain[0];
    uint64_t b = r->chain[1];
    uint64_t c = r->chain[2];
    uint64_t d = r->chain[3];
    uint64_t e = r->chain[4];
    uint64_t f = r->chain[5];

    for (; steps > 0; steps--) {
        w = (w ^ w >> 29) * FACTOR;
        a = (a ^ steps) + (a << 1);
        OPAQUE(a);
        b = (b ^ steps) + (b << 2);
        OPAQUE(b);
        c = (c ^ steps) + (c << 3);
        OPAQUE(c);
        d = (d ^ steps) + (d << 1);
        OPAQUE(d);
        e = (e ^ steps) + (e << 2);
        OPAQUE(e);
        f = (f ^ steps) + (f << 3);
        OPAQUE(f);
    }
    *r = (struct registers){w, {a, b, c, d, e, f}};
}

static int setup(struct instance *self)
{
    struct registers *r = calloc(1, sizeof *r);

    self->state = r;
    if (r == NULL)
        return fail(self, "no memory");
    r->waiting = 1;
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    mix(self->state, steps);
    return 0;
}

/* The same arithmetic, written another way. */
static int verify(struct instance *self)
{
    enum { STEPS = 64 };
    struct registers expected = *(struct registers *)self->state;
    struct registers found = expected;

    mix(&found, STEPS);
    for (uint64_t step = STEPS; step > 0; step--) {
        expected.waiting = (expected.waiting ^ expected.waiting / (UINT64_C(1) << 29)) * FACTOR;
        for (unsigned i = 0; i < CHAINS; i++)
            expected.chain[i] = (expected.chain[i] ^ step) + expected.chain[i] * (UINT64_C(2) << i % 3);
    }
    for (unsigned i = 0; i < CHAINS; i++)
        if (found.chain[i] != expected.chain[i] || found.waiting != expected.waiting)
            return fail(self, "the result of the integer arithmetic is wrong");
    return 0;
}

static void teardown(struct instance *self)
{
    free(self->state);
}

static const struct variant variants[] = {
    {"int", SIZE_NONE, 0, "compute", IN_ALL, false, 0, 0,
     "Integer arithmetic in registers: dependent multiplications and six independent chains"},
};

const struct microbench compute_int_microbench = {
    .prefix = "compute",
    .op = "one round of 7 integer chains",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};

/* compute.float: multiply-adds in registers, eight parallel chains; each nears a fixed
 * point and never a value that is slow to compute with. */
#include "microbench.h"

#include <math.h>
#include <stdlib.h>

enum { CHAINS = 8 };

struct registers {
    double chain[CHAINS];
};

/* The value stays in a register of its own: no vector of several. */
#if defined(__x86_64__)
#define OPAQUE(x) __asm__ volatile("" : "+x"(x))
#elif defined(__aarch64__)
#define OPAQUE(x) __asm__ volatile("" : "+w"(x))
#else
#define OPAQUE(x) __asm__ volatile("" : "+m"(x))
#endif

static const double FACTOR = 0.75;
static const double ADDEND = 0.5; /* x = 0.75 x + 0.5 nears 2 */

#define ROUND(x)             \
    (x) = (x)*FACTOR + ADDEND; \
    OPAQUE(x)

static void mix(struct registers *r, uint64_t steps)
{
    double a = r->chain[0];
    double b = r->chain[1];
    double c = r->chain[2];
    double d = r->chain[3];
    double e = r->chain[4];
    double f = r->chain[5];
    double g = r->chain[6];
    double h = r->chain[7];

    for (; steps > 0; steps--) {
        ROUND(a);
        ROUND(b);
        ROUND(c);
        ROUND(d);
        ROUND(e);
        ROUND(f);
        ROUND(g);
        ROUND(h);
    }
    *r = (struct registers){{a, b, c, d, e, f, g, h}};
}

static int setup(struct instance *self)
{
    struct registers *r = calloc(1, sizeof *r);

    self->state = r;
    if (r == NULL)
        return fail(self, "no memory");
    for (int i = 0; i < CHAINS; i++)
        r->chain[i] = i;
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    mix(self->state, steps);
    return 0;
}

static int verify(struct instance *self)
{
    enum { STEPS = 8 };
    const struct registers *r = self->state;
    struct registers found;

    for (int i = 0; i < CHAINS; i++) {
        if (!(fabs(r->chain[i] - 2) < 1e-9) && !(r->chain[i] >= 0 && r->chain[i] < (double)CHAINS))
            return fail(self, "the result of the floating-point arithmetic is wrong");
        found.chain[i] = 2 + i;
    }
    mix(&found, STEPS); /* from 2 + i: the distance to 2 shrinks to 0.75^8 of itself */
    for (int i = 0; i < CHAINS; i++)
        if (fabs(found.chain[i] - 2 - i * pow(FACTOR, STEPS)) > 1e-9)
            return fail(self, "the result of the floating-point arithmetic is wrong");
    return 0;
}

static void teardown(struct instance *self)
{
    free(self->state);
}

static const struct variant variants[] = {
    {"float", SIZE_NONE, 0, "compute", NOT_QUICK, false, 0, 0,
     "Double-precision multiply-adds in registers, eight parallel chains"},
};

const struct microbench compute_float_microbench = {
    .prefix = "compute",
    .op = "one round of 8 multiply-adds",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};

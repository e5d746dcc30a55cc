/* dummy.*: no benchmarks, but answers by a script, so that the drivers can be tested. */
#include "clock.h"
#include "microbench.h"

#include <signal.h>
#include <unistd.h>

enum mode { OK, FAIL, SLOW, BREAK, WRONG, CRASH };

enum { SCRIPTED_NS = 1000 };

static enum mode mode_of(const struct instance *self)
{
    return (enum mode)self->surrogate->variant->mode;
}

static int setup(struct instance *self)
{
    return mode_of(self) == FAIL ? fail(self, "it was told to fail") : 0;
}

static int run(struct instance *self, uint64_t steps)
{
    self->own_ns = 0;
    for (; steps > 0; steps--) {
        uint64_t length = mode_of(self) == SLOW ? 50 * NS_PER_MS : 10 * NS_PER_US;
        uint64_t end = clock_now() + length;
        while (clock_now() < end)
            ;
        self->own_ns += mode_of(self) == SLOW ? length : SCRIPTED_NS;
        if (mode_of(self) == BREAK)
            return fail(self, "it was told to break");
        if (mode_of(self) == CRASH)
            kill(getpid(), SIGKILL);
    }
    return 0;
}

static int verify(struct instance *self)
{
    return mode_of(self) == WRONG ? fail(self, "it was told to be wrong") : 0;
}

static void teardown(struct instance *self)
{
    (void)self;
}

#define SCRIPT(SUFFIX, MODE, SENTENCE) {SUFFIX, SIZE_NONE, 0, "os", SUITE_HIDDEN, false, MODE, 0, SENTENCE}

static const struct variant variants[] = {
    SCRIPT("ok", OK, "Each operation lasts 10 us and is told as 1 us"),
    SCRIPT("fail", FAIL, "Cannot be set up"),
    SCRIPT("slow", SLOW, "Each operation lasts 50 ms"),
    SCRIPT("break", BREAK, "Fails while it runs"),
    SCRIPT("wrong", WRONG, "Is found wrong afterwards"),
    SCRIPT("crash", CRASH, "Kills its process while it runs"),
};

const struct microbench dummy_microbench = {
    .prefix = "dummy",
    .op = "one scripted answer",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .self_timed = true,
    .setup = setup,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};

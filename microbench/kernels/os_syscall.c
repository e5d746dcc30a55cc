/* os.syscall: into the kernel and back. */
#include "microbench.h"

#include <sys/syscall.h>
#include <unistd.h>

static int setup(struct instance *self)
{
    (void)self;
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    long parent = getppid();

    for (; steps > 0; steps--)
        /* By its number: a library may remember the answer. Our parent may die meanwhile. */
        if (syscall(SYS_getppid) != parent && getppid() == parent)
            return fail(self, "a system call gave a wrong answer");
    return 0;
}

static void teardown(struct instance *self)
{
    (void)self;
}

static const struct variant variants[] = {
    {"syscall", SIZE_NONE, 0, "os", IN_ALL, false, 0, 0, "A cheap system call: into the kernel and back"},
};

const struct microbench os_syscall_microbench = {
    .prefix = "os",
    .op = "one system call",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .run = run,
    .teardown = teardown,
};

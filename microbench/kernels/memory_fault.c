/* memory.fault: the first touch of fresh pages, small or huge as the system gives them. */
#include "resources.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const uint64_t REGION = MIB(32);

struct region {
    volatile char *base;
    uint64_t page;
    uint64_t next; /* page not touched yet */
};

static int setup(struct instance *self)
{
    struct region *region = calloc(1, sizeof *region);

    self->state = region;
    if (region == NULL)
        return fail(self, "no memory");
    region->base = resources_map(self, REGION);
    if (region->base == NULL)
        return -1;
    region->page = (uint64_t)sysconf(_SC_PAGESIZE);
    region->next = REGION / region->page;
    return 0;
}

/* Gives the pages back when all have been touched. */
static int refill(struct instance *self)
{
    struct region *region = self->state;
    uint64_t pages = REGION / region->page;

    if (region->next == pages) {
        if (madvise((void *)(uintptr_t)region->base, REGION, MADV_DONTNEED) < 0)
            return fail(self, "pages cannot be given back: %s", strerror(errno));
        region->next = 0;
    }
    self->max_steps = pages - region->next;
    return 0;
}

static int run(struct instance *self, uint64_t steps)
{
    struct region *region = self->state;

    for (; steps > 0; steps--)
        region->base[region->page * region->next++] = 1;
    return 0;
}

static int verify(struct instance *self)
{
    const struct region *region = self->state;

    for (uint64_t i = 0; i < region->next; i++)
        if (region->base[region->page * i] != 1)
            return fail(self, "page %llu has lost what was written to it", (unsigned long long)i);
    return 0;
}

static void teardown(struct instance *self)
{
    struct region *region = self->state;

    if (region != NULL)
        resources_unmap((void *)(uintptr_t)region->base, REGION);
    free(region);
}

static const struct variant variants[] = {
    {"fault", SIZE_FIXED, MIB(32), "memory", IN_ALL, false, 0, 0,
     "First touch of fresh pages, as the kernel's huge-page setting has them"},
};

const struct microbench memory_fault_microbench = {
    .prefix = "memory",
    .op = "one page touched first",
    .variants = variants,
    .variant_count = sizeof variants / sizeof variants[0],
    .setup = setup,
    .refill = refill,
    .run = run,
    .verify = verify,
    .teardown = teardown,
};

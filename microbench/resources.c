#include "resources.h"

#include "chain.h"
#include "memory_limits.h"
#include "registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The largest page that the system may give on its own accord: begin there, so that it can. */
static const uint64_t ALIGNMENT = MIB(2);

void resources_init(struct resources *resources, const struct config *config)
{
    memset(resources, 0, sizeof *resources);
    resources->config = config;
    scratch_folder_init(&resources->folder);
    io_file_init(&resources->io);
}

void resources_release(struct resources *resources)
{
    if (resources->arena.reservation != NULL)
        munmap(resources->arena.reservation, resources->arena.reserved);
    resources->arena = (struct arena){0};
    io_file_close(&resources->io);
    scratch_folder_remove(&resources->folder);
}

/* A quarter of what is available, shared with the other copies. */
static int claim(struct instance *self, uint64_t bytes)
{
    struct resources *shared = self->shared;

    if (shared->memory_allowed == 0)
        shared->memory_allowed = memory_available() / 4 / shared->config->copies;
    if (bytes > shared->memory_allowed - shared->memory_claimed)
        return fail(self,
                    "not enough memory available now: it needs %llu MiB, and of the quarter that may be taken %llu MiB "
                    "are left",
                    (unsigned long long)(bytes >> 20),
                    (unsigned long long)((shared->memory_allowed - shared->memory_claimed) >> 20));
    shared->memory_claimed += bytes;
    return 0;
}

/* Gives part of a reservation its pages. In one call, which takes half the time of touching them one
 * by one; what kind of pages is left to the system. */
static int populate(struct instance *self, char *from, uint64_t bytes)
{
    void *mapped = mmap(from, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_POPULATE, -1, 0);

    return mapped == from ? 0 : fail(self, "no memory: %s", strerror(errno));
}

static char *aligned(void *address)
{
    return (char *)(((uintptr_t)address + ALIGNMENT - 1) & ~(uintptr_t)(ALIGNMENT - 1));
}

void *resources_map(struct instance *self, uint64_t bytes)
{
    char *reservation;
    char *base;

    if (claim(self, bytes) < 0)
        return NULL;
    reservation = mmap(NULL, bytes + ALIGNMENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reservation == MAP_FAILED) {
        fail(self, "no memory: %s", strerror(errno));
        return NULL;
    }
    base = aligned(reservation);
    if (base > reservation)
        munmap(reservation, (size_t)(base - reservation));
    if (base < reservation + ALIGNMENT)
        munmap(base + bytes, (size_t)(reservation + ALIGNMENT - base));
    if (populate(self, base, bytes) < 0) {
        munmap(base, bytes);
        return NULL;
    }
    return base;
}

void resources_unmap(void *memory, uint64_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}

int resources_arena(struct instance *self, uint64_t bytes)
{
    struct arena *arena = &self->shared->arena;

    bytes = (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    if (arena->base == NULL) {
        /* Addresses for the largest that may be asked for; pages only as they are. */
        uint64_t reserved = registry_arena_limit(self->shared->config) + 2 * ALIGNMENT;
        void *reservation =
            mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reservation == MAP_FAILED)
            return fail(self, "no memory: %s", strerror(errno));
        arena->reservation = reservation;
        arena->reserved = reserved;
        arena->base = aligned(reservation);
    }
    if (bytes > arena->ready) {
        if (claim(self, bytes - arena->ready) < 0 ||
            populate(self, arena->base + arena->ready, bytes - arena->ready) < 0)
            return -1;
        arena->ready = bytes;
    }
    return 0;
}

unsigned resources_arena_word(struct instance *self)
{
    return self->shared->arena.words_used++ % LINE_WORDS;
}

int resources_folder(struct instance *self)
{
    const char *dir = self->shared->config->dir;

    return scratch_folder_make(&self->shared->folder, dir, self->error, sizeof self->error);
}

int resources_io_file(struct instance *self)
{
    struct resources *shared = self->shared;
    struct io_file_request request = {
        .dir = shared->config->dir,
        .bytes = shared->config->io_bytes,
        .block_bytes = self->surrogate->size_bytes,
        .own = shared->own_io_file,
        .on_layout = shared->on_layout,
    };

    if (shared->io.fd < 0 && io_file_open(&shared->io, &request, &shared->folder, self->error, sizeof self->error) < 0)
        return -1;
    self->direct = shared->io.direct;
    return 0;
}

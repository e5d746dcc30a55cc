/* What the instances of one process share: the memory arena, the folder for small files, the file
 * for block I/O, and the account of what they take. */
#ifndef KONGMING_RESOURCES_H
#define KONGMING_RESOURCES_H

#include "io_file.h"
#include "microbench.h"
#include "options.h"
#include "scratch_folder.h"

struct arena {
    char *base;          /* NULL: nothing has been asked for */
    uint64_t ready;      /* bytes from the base on that have pages */
    void *reservation;   /* the address range, which is more than the arena */
    uint64_t reserved;
    unsigned words_used; /* of each line, by chains */
};

struct resources {
    const struct config *config;
    uint64_t memory_claimed;
    uint64_t memory_allowed; /* 0: not looked yet */
    struct arena arena;
    struct scratch_folder folder;
    struct io_file io;
    bool own_io_file; /* an inducer's: it never lays out the shared one */
    void (*on_layout)(uint64_t done, uint64_t total); /* may be NULL */
};

void resources_init(struct resources *resources, const struct config *config);
void resources_release(struct resources *resources);

/* Anonymous memory, prefaulted, of which there is enough at this moment. NULL after fail(). */
void *resources_map(struct instance *self, uint64_t bytes);
void resources_unmap(void *memory, uint64_t bytes);

/* Sees to it that so much of the arena has pages. 0, or fail(). */
int resources_arena(struct instance *self, uint64_t bytes);

/* A word of each line that no other chain has. */
unsigned resources_arena_word(struct instance *self);

/* The folder for small files, made if it is not there. 0, or fail(). */
int resources_folder(struct instance *self);

/* The file for block I/O, opened. 0, or fail(). */
int resources_io_file(struct instance *self);

#endif

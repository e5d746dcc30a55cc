/* The batches of a chunk: their operations and nanoseconds, neighbours merged when they are many. */
#ifndef KONGMING_BATCHES_H
#define KONGMING_BATCHES_H

#include <stddef.h>
#include <stdint.h>

enum { MOST_BATCHES = 64 };

struct batch {
    double ops;
    uint64_t ns;
};

struct batches {
    size_t count;
    unsigned merged;   /* how many batches go into one entry */
    unsigned in_last;  /* how many are in the last one */
    double ops;        /* of all */
    uint64_t ns;
    struct batch list[MOST_BATCHES];
};

void batches_init(struct batches *batches);
void batches_add(struct batches *batches, double ops, uint64_t ns);

#endif

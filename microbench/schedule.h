/* Which surrogate is timed next, and for how long: arithmetic only. */
#ifndef KONGMING_SCHEDULE_H
#define KONGMING_SCHEDULE_H

#include "registry.h"

struct schedule_request {
    uint64_t total_ns; /* 0: 2 s, or as long as the rounds asked for take */
    uint64_t chunk_ns; /* 0: shared out of the total */
    uint64_t rounds;   /* 0: as many as the time allows */
};

struct schedule {
    struct schedule_request request;
    uint64_t start_ns;
    uint64_t random;
    uint64_t round;         /* of the rounds begun */
    uint64_t planned;       /* rounds by which the time is shared out */
    size_t left_in_round;
    size_t count;
    size_t order[MOST_SURROGATES];
};

void schedule_init(struct schedule *schedule, const struct schedule_request *request, size_t count, uint64_t seed,
                   uint64_t now_ns);

/* False: it is over. The first round is always finished; but a chunk is never long. */
bool schedule_next(struct schedule *schedule, uint64_t now_ns, size_t *which, uint64_t *length_ns);

/* That one does not come up again. */
void schedule_drop(struct schedule *schedule, size_t which);

#endif

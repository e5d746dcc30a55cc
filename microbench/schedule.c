#include "schedule.h"

#include "clock.h"

static const uint64_t DEFAULT_TOTAL_NS = 2 * NS_PER_S;
static const uint64_t DEFAULT_CHUNK_NS = 20 * NS_PER_MS; /* long enough for a warm-up and some batches */
static const uint64_t LEAST_CHUNK_NS = 1 * NS_PER_MS;
enum { MOST_PLANNED_ROUNDS = 8 };

static uint64_t next_random(struct schedule *schedule)
{
    uint64_t x = schedule->random += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void shuffle(struct schedule *schedule)
{
    for (size_t i = schedule->count; i > 1; i--) {
        size_t k = next_random(schedule) % i;
        size_t swapped = schedule->order[i - 1];
        schedule->order[i - 1] = schedule->order[k];
        schedule->order[k] = swapped;
    }
}

void schedule_init(struct schedule *schedule, const struct schedule_request *request, size_t count, uint64_t seed,
                   uint64_t now_ns)
{
    *schedule = (struct schedule){.request = *request, .start_ns = now_ns, .random = seed, .count = count};
    for (size_t i = 0; i < count; i++)
        schedule->order[i] = i;
    if (request->total_ns == 0 && request->rounds == 0)
        schedule->request.total_ns = DEFAULT_TOTAL_NS;
    schedule->planned = request->rounds;
    if (schedule->planned == 0 && count > 0) {
        uint64_t chunk = request->chunk_ns != 0 ? request->chunk_ns : DEFAULT_CHUNK_NS;
        schedule->planned = schedule->request.total_ns / (chunk * count);
        if (schedule->planned < 1)
            schedule->planned = 1;
        if (schedule->planned > MOST_PLANNED_ROUNDS && request->chunk_ns == 0)
            schedule->planned = MOST_PLANNED_ROUNDS;
    }
}

/* What is left of the time, shared by the chunks that are left: so one that took too long makes the
 * others shorter, and not the whole longer. */
static uint64_t chunk_length(const struct schedule *schedule, uint64_t elapsed_ns)
{
    uint64_t total = schedule->request.total_ns;
    uint64_t rounds_after = schedule->planned > schedule->round ? schedule->planned - schedule->round : 0;
    uint64_t chunks = rounds_after * schedule->count + schedule->left_in_round;
    uint64_t length;

    if (schedule->request.chunk_ns != 0)
        return schedule->request.chunk_ns;
    if (total == 0)
        return DEFAULT_CHUNK_NS;
    length = elapsed_ns < total ? (total - elapsed_ns) / chunks : 0;
    return length < LEAST_CHUNK_NS ? LEAST_CHUNK_NS : length;
}

bool schedule_next(struct schedule *schedule, uint64_t now_ns, size_t *which, uint64_t *length_ns)
{
    uint64_t elapsed = now_ns - schedule->start_ns;
    uint64_t total = schedule->request.total_ns;

    if (schedule->count == 0)
        return false;
    if (schedule->left_in_round == 0) {
        if (schedule->request.rounds != 0 && schedule->round >= schedule->request.rounds)
            return false;
        schedule->left_in_round = schedule->count;
        schedule->round++;
        shuffle(schedule);
    }
    if (schedule->round > 1 && total != 0) {
        /* A last chunk that has no room to speak of says less than it costs. */
        uint64_t wanted = schedule->request.chunk_ns != 0 ? schedule->request.chunk_ns / 2 : LEAST_CHUNK_NS;
        if (elapsed + wanted > total)
            return false;
    }
    *length_ns = chunk_length(schedule, elapsed);
    *which = schedule->order[--schedule->left_in_round];
    return true;
}

void schedule_drop(struct schedule *schedule, size_t which)
{
    for (size_t i = 0; i < schedule->count; i++) {
        if (schedule->order[i] != which)
            continue;
        if (i < schedule->left_in_round)
            schedule->left_in_round--;
        for (size_t k = i + 1; k < schedule->count; k++)
            schedule->order[k - 1] = schedule->order[k];
        schedule->count--;
        return;
    }
}

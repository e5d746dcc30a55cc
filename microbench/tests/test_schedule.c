#include "check.h"
#include "clock.h"
#include "schedule.h"

#include <string.h>

enum { COUNT = 13 };

/* A run in which each chunk takes that much more than it may. Gives its length. */
static uint64_t simulate(const struct schedule_request *request, uint64_t late_ns, unsigned *visits)
{
    struct schedule schedule;
    uint64_t now = 5000;
    const uint64_t start = now;
    size_t which;
    uint64_t length;

    memset(visits, 0, COUNT * sizeof *visits);
    schedule_init(&schedule, request, COUNT, 42, now);
    for (unsigned chunks = 0; schedule_next(&schedule, now, &which, &length); chunks++) {
        CHECK(which < COUNT && visits[which] == chunks / COUNT); /* each once a round */
        visits[which]++;
        now += length + late_ns;
    }
    return now - start;
}

int main(void)
{
    unsigned visits[COUNT];
    struct schedule_request request = {.total_ns = NS_PER_S / 2};
    uint64_t elapsed = simulate(&request, 0, visits);

    CHECK(elapsed <= NS_PER_S / 2 && elapsed > NS_PER_S / 2 - 5 * NS_PER_MS);
    CHECK(visits[0] >= 1);

    /* What takes too long shortens the rest, as long as there is a rest. */
    elapsed = simulate(&request, 5 * NS_PER_MS, visits);
    CHECK(elapsed < NS_PER_S / 2 + 10 * NS_PER_MS);

    /* The first round is finished, however slow all is. */
    simulate(&request, NS_PER_S, visits);
    for (int i = 0; i < COUNT; i++)
        CHECK(visits[i] == 1);

    request = (struct schedule_request){.rounds = 3, .chunk_ns = 10 * NS_PER_MS};
    elapsed = simulate(&request, 0, visits);
    CHECK(elapsed == (uint64_t)3 * COUNT * 10 * NS_PER_MS && visits[COUNT - 1] == 3);

    request = (struct schedule_request){.total_ns = 10 * NS_PER_S, .chunk_ns = 300 * NS_PER_MS};
    elapsed = simulate(&request, 0, visits);
    CHECK(elapsed >= 9700 * NS_PER_MS && elapsed <= 10200 * NS_PER_MS);

    /* One that failed comes up no more; the others do. */
    struct schedule schedule;
    size_t which;
    uint64_t length;
    request = (struct schedule_request){.rounds = 2, .chunk_ns = NS_PER_MS};
    schedule_init(&schedule, &request, 3, 1, 0);
    CHECK(schedule_next(&schedule, 0, &which, &length));
    size_t dropped = which;
    schedule_drop(&schedule, dropped);
    unsigned left = 0;
    while (schedule_next(&schedule, 0, &which, &length)) {
        CHECK(which != dropped);
        left++;
    }
    CHECK(left == 4);
    return checks_result();
}

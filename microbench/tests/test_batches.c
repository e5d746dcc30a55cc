#include "batches.h"
#include "check.h"

/* Nothing is lost by merging, and there are never too many. */
static void check_sums(unsigned added)
{
    static struct batches batches;
    double ops = 0;
    uint64_t ns = 0;

    batches_init(&batches);
    for (unsigned i = 1; i <= added; i++)
        batches_add(&batches, i, (uint64_t)10 * i);
    for (size_t i = 0; i < batches.count; i++) {
        ops += batches.list[i].ops;
        ns += batches.list[i].ns;
    }
    CHECK(batches.count <= MOST_BATCHES);
    CHECK(added < MOST_BATCHES ? batches.count == added : batches.count >= MOST_BATCHES / 2);
    CHECK(ops == added * (added + 1.0) / 2 && ops == batches.ops);
    CHECK(ns == (uint64_t)10 * added * (added + 1) / 2 && ns == batches.ns);
}

/* But for the last one, all entries hold equally many batches. */
static void check_even(void)
{
    static struct batches batches;

    batches_init(&batches);
    for (int i = 0; i < 1000; i++)
        batches_add(&batches, 1, 1);
    for (size_t i = 0; i + 1 < batches.count; i++)
        CHECK(batches.list[i].ns == batches.merged);
}

int main(void)
{
    for (unsigned added = 1; added < 1000; added++)
        check_sums(added);
    check_even();
    return checks_result();
}

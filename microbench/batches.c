#include "batches.h"

void batches_init(struct batches *batches)
{
    batches->count = 0;
    batches->merged = 1;
    batches->in_last = 0;
    batches->ops = 0;
    batches->ns = 0;
}

static void halve(struct batches *batches)
{
    for (size_t i = 0; i < MOST_BATCHES / 2; i++) {
        const struct batch *pair = &batches->list[2 * i];
        batches->list[i] = (struct batch){pair[0].ops + pair[1].ops, pair[0].ns + pair[1].ns};
    }
    batches->count = MOST_BATCHES / 2;
    batches->merged *= 2;
}

void batches_add(struct batches *batches, double ops, uint64_t ns)
{
    batches->ops += ops;
    batches->ns += ns;
    if (batches->count > 0 && batches->in_last < batches->merged) {
        batches->list[batches->count - 1].ops += ops;
        batches->list[batches->count - 1].ns += ns;
        batches->in_last++;
        return;
    }
    if (batches->count == MOST_BATCHES)
        halve(batches);
    batches->list[batches->count++] = (struct batch){ops, ns};
    batches->in_last = 1;
}

/* A random walk over a graph: each step waits for the one before, so it pays memory latency.
 * Usage: random_walk THOUSAND_NODES MILLION_STEPS */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEGREE = 7 };

struct node {
    uint32_t visits;
    uint32_t edges[DEGREE];
};

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: random_walk THOUSAND_NODES MILLION_STEPS\n");
        return 2;
    }
    const uint64_t count = strtoull(argv[1], NULL, 10) * 1000;
    const uint64_t steps = strtoull(argv[2], NULL, 10) * 1000000;
    struct node *nodes = calloc(count, sizeof *nodes);
    if (!nodes || !count) {
        fprintf(stderr, "random_walk: not enough memory\n");
        return 1;
    }
    uint64_t state = 0x2545F4914F6CDD1DULL;
    for (uint64_t i = 0; i < count; i++)
        for (int edge = 0; edge < DEGREE; edge++)
            nodes[i].edges[edge] = (uint32_t)(next_random(&state) % count);
    uint32_t here = 0;
    for (uint64_t step = 0; step < steps; step++) {
        struct node *node = &nodes[here];
        node->visits++;
        /* The number of visits turns the walk, so that it never closes into a short cycle. */
        here = node->edges[(next_random(&state) + node->visits) % DEGREE];
    }
    uint32_t most = 0;
    for (uint64_t i = 0; i < count; i++)
        if (nodes[i].visits > most)
            most = nodes[i].visits;
    printf("walked %llu steps, at %u, at most %u visits\n", (unsigned long long)steps, here, most);
    free(nodes);
    return 0;
}

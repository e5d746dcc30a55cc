/* All shortest paths of dense graphs by Floyd and Warshall's method: every round reads and writes
 * a whole table that is larger than a core's own caches and fits into the last one.
 * Usage: shortest_paths PLACES GRAPHS */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t state = 6364136223846793005ULL;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Lengths are whole numbers, so that sums are exact in whatever order they are taken. */
static void draw(float *lengths, uint64_t places)
{
    for (uint64_t from = 0; from < places; from++)
        for (uint64_t to = 0; to < places; to++)
            lengths[from * places + to] = from == to ? 0.0F : (float)(1 + next_random() % 10000);
}

static void shorten(float *lengths, uint64_t places)
{
    for (uint64_t via = 0; via < places; via++) {
        const float *onward = lengths + via * places;
        for (uint64_t from = 0; from < places; from++) {
            float *row = lengths + from * places;
            const float first = row[via];
            for (uint64_t to = 0; to < places; to++) {
                const float through = first + onward[to];
                row[to] = through < row[to] ? through : row[to];
            }
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: shortest_paths PLACES GRAPHS\n");
        return 2;
    }
    const uint64_t places = strtoull(argv[1], NULL, 10);
    const uint64_t graphs = strtoull(argv[2], NULL, 10);
    float *lengths = malloc(places * places * sizeof *lengths);
    if (!lengths || !places) {
        fprintf(stderr, "shortest_paths: not enough memory\n");
        return 1;
    }
    uint64_t total = 0;
    for (uint64_t graph = 0; graph < graphs; graph++) {
        draw(lengths, places);
        shorten(lengths, places);
        for (uint64_t i = 0; i < places * places; i++)
            total += (uint64_t)lengths[i];
    }
    printf("%llu graphs, all paths together %llu\n", (unsigned long long)graphs,
           (unsigned long long)total);
    free(lengths);
    return 0;
}

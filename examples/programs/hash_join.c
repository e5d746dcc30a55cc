/* A hash join: builds a chained table over one relation and probes it with another. Every probe
 * follows pointers through memory far larger than a core's own caches.
 * Usage: hash_join BUILD_MILLIONS PROBE_MILLIONS */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct row {
    struct row *next;
    uint64_t key;
    uint64_t payload;
};

static uint64_t state = 88172645463325252ULL;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t bucket_of(uint64_t key, uint64_t mask)
{
    return ((key * 0x9E3779B97F4A7C15ULL) >> 20) & mask;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: hash_join BUILD_MILLIONS PROBE_MILLIONS\n");
        return 2;
    }
    const uint64_t build = strtoull(argv[1], NULL, 10) * 1000000;
    const uint64_t probe = strtoull(argv[2], NULL, 10) * 1000000;
    uint64_t buckets = 1;
    while (buckets < build)
        buckets *= 2;
    struct row *rows = malloc(build * sizeof *rows);
    struct row **table = calloc(buckets, sizeof *table);
    if (!rows || !table) {
        fprintf(stderr, "hash_join: not enough memory\n");
        return 1;
    }
    for (uint64_t i = 0; i < build; i++) {
        rows[i].key = next_random() % (2 * build);
        rows[i].payload = i;
        struct row **head = &table[bucket_of(rows[i].key, buckets - 1)];
        rows[i].next = *head;
        *head = &rows[i];
    }
    uint64_t matches = 0, sum = 0;
    for (uint64_t i = 0; i < probe; i++) {
        const uint64_t key = next_random() % (2 * build);
        for (struct row *row = table[bucket_of(key, buckets - 1)]; row; row = row->next)
            if (row->key == key) {
                matches++;
                sum += row->payload;
            }
    }
    printf("joined %llu matches, sum %llu\n", (unsigned long long)matches, (unsigned long long)sum);
    free(table);
    free(rows);
    return 0;
}

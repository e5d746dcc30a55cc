/* An independent pointer chase: one pointer a cache line, in one random cycle by Sattolo's
 * algorithm, over BYTES of ordinary memory. Written without a look at KONGMING's own kernel.
 * Usage: chase BYTES SECONDS; prints {"seconds_per_op": ...} */
#define _POSIX_C_SOURCE 200809L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct line {
    struct line *next;
    char rest[64 - sizeof(struct line *)];
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static uint64_t next_random(void)
{
    static uint64_t state = 0x9E3779B97F4A7C15ULL;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static struct line *follow(struct line *line, uint64_t loads)
{
    for (uint64_t i = 0; i < loads / 16; i++) {
        line = line->next; line = line->next; line = line->next; line = line->next;
        line = line->next; line = line->next; line = line->next; line = line->next;
        line = line->next; line = line->next; line = line->next; line = line->next;
        line = line->next; line = line->next; line = line->next; line = line->next;
    }
    return line;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: chase BYTES SECONDS\n");
        return 2;
    }
    const uint64_t count = strtoull(argv[1], NULL, 10) / sizeof(struct line);
    const double seconds = strtod(argv[2], NULL);
    struct line *lines = NULL;
    uint32_t *order = malloc(count * sizeof *order);
    if (count < 2 || posix_memalign((void **)&lines, 4096, count * sizeof *lines) != 0 || !order) {
        fprintf(stderr, "chase: not enough memory, or fewer than two lines\n");
        return 1;
    }
    for (uint64_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (uint64_t i = count - 1; i > 0; i--) {
        const uint64_t j = next_random() % i; /* below i, never i: Sattolo's one cycle */
        const uint32_t other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (uint64_t i = 0; i < count; i++)
        lines[i].next = &lines[order[i]];
    free(order);

    struct line *here = lines;
    /* Untimed: twice around, or a short while for what does not fit any cache. */
    const double warm = now() + 0.5;
    for (uint64_t done = 0; done < 2 * count && now() < warm; done += 65536)
        here = follow(here, 65536);
    uint64_t loads = 0;
    const double start = now();
    double end;
    do {
        here = follow(here, 65536);
        loads += 65536;
        end = now();
    } while (end - start < seconds);
    /* Printing an address-dependent value keeps the chase from being removed. */
    printf("{\"seconds_per_op\": %.6e, \"ops\": %llu, \"last\": %llu}\n", (end - start) / (double)loads,
           (unsigned long long)loads, (unsigned long long)(here - lines));
    free(lines);
    return 0;
}

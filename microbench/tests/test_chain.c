#include "chain.h"
#include "check.h"

#include <stdbool.h>
#include <stdlib.h>

static void check_one_cycle(uint32_t lines, unsigned word)
{
    struct chain chain = chain_of(lines);
    void **base = aligned_alloc(LINE_BYTES, (size_t)lines * LINE_BYTES);
    bool *seen = calloc(lines, sizeof *seen);
    void **position = base + word;
    uint32_t visited = 0;

    if (base == NULL || seen == NULL)
        abort();
    chain_write(&chain, base, word);
    for (uint32_t i = 0; i < lines; i++) {
        size_t line = (size_t)(position - base - word) / LINE_WORDS;
        if (line >= lines || (size_t)(position - base) % LINE_WORDS != word || seen[line])
            break;
        seen[line] = true;
        visited++;
        position = *position;
    }
    CHECK(visited == lines);
    CHECK(position == base + word);
    free(seen);
    free(base);
}

static void check_permutation(uint32_t lines)
{
    struct chain chain = chain_of(lines);

    for (uint32_t i = 0; i < lines; i++) {
        CHECK(chain_permute(&chain, i) < lines);
        CHECK(chain_rank(&chain, chain_permute(&chain, i)) == i);
        CHECK(chain_permute(&chain, chain_rank(&chain, i)) == i);
    }
}

/* Two chains in one arena do not touch each other. */
static void check_words_are_apart(void)
{
    enum { LARGE = 1024, SMALL = 96 };
    struct chain large = chain_of(LARGE);
    struct chain small = chain_of(SMALL);
    void **base = aligned_alloc(LINE_BYTES, (size_t)LARGE * LINE_BYTES);
    void **position;
    uint32_t steps = 0;

    if (base == NULL)
        abort();
    chain_write(&large, base, 3);
    chain_write(&small, base, 4);
    position = base + 3;
    do {
        position = *position;
        steps++;
    } while (position != base + 3 && steps <= LARGE);
    CHECK(steps == LARGE);
    free(base);
}

/* No prefetcher follows it: it seldom stays in a page, and no distance comes up often. */
static void check_looks_random(uint32_t lines)
{
    enum { LINES_PER_PAGE = 64 };
    struct chain chain = chain_of(lines);
    uint32_t *times = calloc(2 * (size_t)lines, sizeof *times);
    uint32_t same_page = 0;
    uint32_t most = 0;

    if (times == NULL)
        abort();
    for (uint32_t rank = 0; rank + 1 < lines; rank++) {
        uint32_t from = chain_permute(&chain, rank);
        uint32_t to = chain_permute(&chain, rank + 1);
        uint32_t distance = to + lines - from;
        same_page += from / LINES_PER_PAGE == to / LINES_PER_PAGE;
        if (++times[distance] > most)
            most = times[distance];
    }
    CHECK(same_page < 3 * LINES_PER_PAGE); /* 64 are to be expected, whatever the size */
    CHECK(most < 40 + lines / 1000);
    free(times);
}

int main(void)
{
    static const uint32_t sizes[] = {1,    2,    3,    5,     16,    17,    63,    64,     100,    255,    256,
                                     257,  1000, 1024, 4095,  4096,  4097,  8192,  10000,  16384,  65535,  65536,
                                     65537, 98304, 131072, 150016, 262144, 393216, 1048576, 1310720};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_one_cycle(sizes[i], (unsigned)(i % LINE_WORDS));
    for (uint32_t lines = 1; lines < 300; lines++)
        check_permutation(lines);
    check_permutation(100000);
    check_words_are_apart();
    check_looks_random(131072);
    check_looks_random(150016);
    check_looks_random(1048576);
    return checks_result();
}

#include "chain.h"

#include "multiversion.h"

#include <stdbool.h>

/* Odd, hence invertible modulo any power of two; the digits are those of well-tested hashes. */
static const uint32_t multiplier[3] = {0x7feb352dU, 0x846ca68bU, 0x9e3779b1U};
static const uint32_t inverse[3] = {0x1d69e2a5U, 0x43021123U, 0x0e8b2f51U};

struct chain chain_of(uint32_t lines)
{
    struct chain chain = {.lines = lines, .mask = 0, .shift = 1};
    unsigned bits = 0;

    while (chain.mask < lines - 1) {
        chain.mask = chain.mask * 2 + 1;
        bits++;
    }
    /* With a shift of half the bits or more, x ^= x >> shift undoes itself. */
    if (bits > 1)
        chain.shift = (bits + 1) / 2;
    return chain;
}

static inline uint32_t mix(uint32_t x, uint32_t mask, unsigned shift)
{
    for (int round = 0; round < 3; round++) {
        x ^= x >> shift;
        x = (x * multiplier[round] + multiplier[2 - round]) & mask;
    }
    return x ^ x >> shift;
}

static inline uint32_t unmix(uint32_t x, uint32_t mask, unsigned shift)
{
    for (int round = 2; round >= 0; round--) {
        x ^= x >> shift;
        x = (x - multiplier[2 - round]) * inverse[round] & mask;
    }
    return x ^ x >> shift;
}

/* Where the lines are no power of two, P walks on along its cycle until it is back among them: that
 * is a permutation of them too, and at most two steps long on average. */
uint32_t chain_permute(const struct chain *chain, uint32_t rank)
{
    do
        rank = mix(rank, chain->mask, chain->shift);
    while (rank >= chain->lines);
    return rank;
}

uint32_t chain_rank(const struct chain *chain, uint32_t line)
{
    do
        line = unmix(line, chain->mask, chain->shift);
    while (line >= chain->lines);
    return line;
}

enum { BLOCK_LINES = 256 };

/* Without walking, in a loop that compilers turn into vector code. */
MULTIVERSION
static void successors(uint32_t first, uint32_t mask, unsigned shift, uint32_t *out)
{
    for (uint32_t i = 0; i < BLOCK_LINES; i++)
        out[i] = mix((unmix(first + i, mask, shift) + 1) & mask, mask, shift);
}

void chain_write(const struct chain *chain, void **base, unsigned word)
{
    const bool whole = chain->lines == chain->mask + 1U && chain->lines % BLOCK_LINES == 0;
    uint32_t next[BLOCK_LINES];

    base += word;
    for (uint32_t first = 0; first < chain->lines; first += BLOCK_LINES) {
        uint32_t count = chain->lines - first < BLOCK_LINES ? chain->lines - first : BLOCK_LINES;
        if (whole) {
            successors(first, chain->mask, chain->shift, next);
        } else {
            for (uint32_t i = 0; i < count; i++) {
                uint32_t rank = chain_rank(chain, first + i) + 1;
                next[i] = chain_permute(chain, rank == chain->lines ? 0 : rank);
            }
        }
        for (uint32_t i = 0; i < count; i++)
            base[(uint64_t)(first + i) * LINE_WORDS] = base + (uint64_t)next[i] * LINE_WORDS;
    }
}

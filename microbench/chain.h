/* A pointer chain that visits every line of its set once in an order no prefetcher follows, and
 * that can yet be written from the first line to the last.
 *
 * Any permutation P of the lines 0..n-1 gives one: line P(i) leads to line P(i+1). It is a single
 * cycle whatever P is. With a P that can be inverted, the successor of line j is P(P^-1(j) + 1): so
 * each is known without its predecessors, and a chain over 1 GiB is written at the speed of memory. */
#ifndef KONGMING_CHAIN_H
#define KONGMING_CHAIN_H

#include <stdint.h>

enum { LINE_BYTES = 64, LINE_WORDS = 8 };

struct chain {
    uint32_t lines;
    uint32_t mask; /* of the power of two that P really permutes, the smallest that holds them */
    unsigned shift;
};

/* For 1 to 2^31 lines. */
struct chain chain_of(uint32_t lines);

uint32_t chain_permute(const struct chain *chain, uint32_t rank); /* P */
uint32_t chain_rank(const struct chain *chain, uint32_t line);    /* P^-1 */

/* Writes to word number `word` of each line the address of that word in the line's successor. */
void chain_write(const struct chain *chain, void **base, unsigned word);

#endif

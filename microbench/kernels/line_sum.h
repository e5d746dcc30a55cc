/* Adding up whole lines of 64 bytes, as fast as the machine reads them. */
#ifndef KONGMING_LINE_SUM_H
#define KONGMING_LINE_SUM_H

#include "microbench.h"

/* The sum of all words of `count` lines of a set, from line `position` on and round to its first. */
uint64_t line_sum(const char *base, uint64_t lines, uint64_t position, uint64_t count);

/* Reads a set once: the whole if it is at most 32 MiB, else a part of twice the last-level cache as
 * long as the time for warming up lasts. */
void line_sum_warm(const struct instance *self, const char *base, uint64_t bytes);

#endif

/* What the unit tests need: a condition that must hold, and a count of those that did not. */
#ifndef KONGMING_CHECK_H
#define KONGMING_CHECK_H

#include <stdio.h>

static int checks_failed;

#define CHECK(condition)                                                               \
    do {                                                                               \
        if (!(condition)) {                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            checks_failed++;                                                           \
        }                                                                              \
    } while (0)

/* Of main(). */
static inline int checks_result(void)
{
    return checks_failed == 0 ? 0 : 1;
}

#endif

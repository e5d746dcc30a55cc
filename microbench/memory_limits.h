/* How much memory may be taken at this moment. */
#ifndef KONGMING_MEMORY_LIMITS_H
#define KONGMING_MEMORY_LIMITS_H

#include <stdint.h>

/* What is available to this process now: the machine's, or what its control groups leave, if that
 * is less. */
uint64_t memory_available(void);

#endif

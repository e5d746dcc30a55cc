#include "line_sum.h"

#include "chain.h"
#include "clock.h"
#include "resources.h"

#include <string.h>

/* Two lines at a time into sums that do not wait for each other. Of vectors just as wide as the
 * machine's: wider ones would be kept in memory. */
#define DEFINE_LINE_SUM(NAME, WIDTH)                                                                       \
    static uint64_t NAME(const char *base, uint64_t lines, uint64_t position, uint64_t count)              \
    {                                                                                                      \
        typedef uint64_t vector __attribute__((vector_size(WIDTH), may_alias));                            \
        const size_t IN_LINE = LINE_BYTES / (WIDTH);                                                       \
        vector sums[2 * LINE_BYTES / (WIDTH)] = {{0}};                                                     \
        uint64_t words[(WIDTH) / sizeof(uint64_t)];                                                        \
        uint64_t total = 0;                                                                                \
                                                                                                           \
        while (count > 0) {                                                                                \
            uint64_t now = lines - position < count ? lines - position : count;                            \
            const vector *from = (const vector *)(const void *)(base + position * LINE_BYTES);             \
            const vector *end = from + now * IN_LINE;                                                      \
            for (; (size_t)(end - from) >= 2 * IN_LINE; from += 2 * IN_LINE)                               \
                _Pragma("GCC unroll 8")                                                                    \
                for (size_t i = 0; i < 2 * IN_LINE; i++)                                                   \
                    sums[i] += from[i];                                                                    \
            if (from < end)                                                                                \
                _Pragma("GCC unroll 8")                                                                    \
                for (size_t i = 0; i < IN_LINE; i++)                                                       \
                    sums[i] += from[i];                                                                    \
            MEMORY_IS_READ(); /* or a small set would be read once and multiplied */                       \
            count -= now;                                                                                  \
            position = position + now == lines ? 0 : position + now;                                       \
        }                                                                                                  \
        _Pragma("GCC unroll 8")                                                                            \
        for (size_t i = 1; i < 2 * IN_LINE; i++)                                                           \
            sums[0] += sums[i];                                                                            \
        memcpy(words, &sums[0], sizeof words);                                                             \
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)                                        \
            total += words[i];                                                                             \
        return total;                                                                                      \
    }

DEFINE_LINE_SUM(line_sum_16, 16)

#if defined(__x86_64__)
__attribute__((target("avx2"))) DEFINE_LINE_SUM(line_sum_32, 32)
#endif

uint64_t line_sum(const char *base, uint64_t lines, uint64_t position, uint64_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return line_sum_32(base, lines, position, count);
#endif
    return line_sum_16(base, lines, position, count);
}

void line_sum_warm(const struct instance *self, const char *base, uint64_t bytes)
{
    const uint64_t slice = MIB(1);
    const uint64_t llc_twice = 2 * self->shared->config->llc_bytes;
    uint64_t sum = 0;

    if (bytes > MIB(32) && bytes > llc_twice)
        bytes = llc_twice;
    for (uint64_t done = 0; done < bytes; done += slice) {
        uint64_t now = bytes - done < slice ? bytes - done : slice;
        if (bytes > MIB(32) && clock_now() >= self->warm_until_ns)
            break;
        sum += line_sum(base + done, now / LINE_BYTES, 0, now / LINE_BYTES);
    }
    SINK(sum);
}

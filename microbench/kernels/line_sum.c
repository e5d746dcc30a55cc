#include "line_sum.h"

#include "chain.h"
#include "clock.h"
#include "multiversion.h"
#include "resources.h"

typedef uint64_t line_vector __attribute__((vector_size(64), aligned(64), may_alias));

MULTIVERSION
uint64_t line_sum(const char *base, uint64_t lines, uint64_t position, uint64_t count)
{
    line_vector a = {0};
    line_vector b = {0};
    line_vector c = {0};
    line_vector d = {0};

    while (count > 0) {
        uint64_t now = lines - position < count ? lines - position : count;
        const line_vector *line = (const line_vector *)(const void *)(base + position * LINE_BYTES);
        uint64_t i = 0;
        for (; i + 4 <= now; i += 4) {
            a += line[i];
            b += line[i + 1];
            c += line[i + 2];
            d += line[i + 3];
        }
        for (; i < now; i++)
            a += line[i];
        MEMORY_IS_READ(); /* or a small set would be read once and multiplied */
        count -= now;
        position = position + now == lines ? 0 : position + now;
    }
    a = a + b + c + d;
    return a[0] + a[1] + a[2] + a[3] + a[4] + a[5] + a[6] + a[7];
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

#include "options.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int option_unsigned(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || strchr(text, '-') != NULL || value < least || value > most) {
        fprintf(stderr, "kongming-microbench: --%s must be a whole number from %llu to %llu. Got '%s' instead.\n", name,
                (unsigned long long)least, (unsigned long long)most, text);
        return -1;
    }
    *out = value;
    return 0;
}

static int option_double(const char *name, const char *text, double most, const char *what, double *out)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(value) || value <= 0 || value > most) {
        fprintf(stderr, "kongming-microbench: --%s must be %s. Got '%s' instead.\n", name, what, text);
        return -1;
    }
    *out = value;
    return 0;
}

int option_seconds(const char *name, const char *text, double *out)
{
    return option_double(name, text, 1e7, "seconds, more than 0", out);
}

int option_share(const char *name, const char *text, double *out)
{
    return option_double(name, text, 1, "more than 0 and at most 1", out);
}

int option_shared(struct config *config, int value, const char *argument)
{
    uint64_t number = 0;

    switch (value) {
    case OPTION_L2:
        if (option_unsigned("l2", argument, 0, UINT64_C(1) << 40, &number) < 0)
            return -1;
        if (number != 0)
            config->l2_bytes = number;
        return 0;
    case OPTION_LLC:
        if (option_unsigned("llc", argument, 0, UINT64_C(1) << 40, &number) < 0)
            return -1;
        if (number != 0)
            config->llc_bytes = number;
        return 0;
    case OPTION_MEMORY:
        return option_unsigned("memory", argument, UINT64_C(1) << 20, UINT64_C(1) << 50, &config->memory_bytes);
    case OPTION_IO_BYTES:
        return option_unsigned("io-bytes", argument, UINT64_C(1) << 20, UINT64_C(1) << 50, &config->io_bytes);
    case OPTION_DIR:
        config->dir = argument;
        return 0;
    case OPTION_CPU:
        if (option_unsigned("cpu", argument, 0, CPU_SETSIZE - 1, &number) < 0)
            return -1;
        config->cpu = (int)number;
        return 0;
    case OPTION_LIFELINE:
        if (option_unsigned("lifeline", argument, 0, INT_MAX, &number) < 0)
            return -1;
        config->lifeline = (int)number;
        return 0;
    default:
        return -1; /* getopt_long has said it already */
    }
}

int pin_to_cpu(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) < 0) {
        fprintf(stderr, "kongming-microbench: CPU %d cannot be used here: %s\n", cpu, strerror(errno));
        return -1;
    }
    return 0;
}

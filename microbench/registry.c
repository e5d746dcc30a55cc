#include "registry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KERNEL_ADDRESS(kernel) &kernel##_microbench,
static const struct microbench *const kernels[] = {KERNELS(KERNEL_ADDRESS)};
#undef KERNEL_ADDRESS

enum { PAGE_OF_LINES = 4096 };

int fail(struct instance *self, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the analyser loses sight of va_start() */
    vsnprintf(self->error, sizeof self->error, format, arguments);
    va_end(arguments);
    return -1;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t power_of_two_within(uint64_t bytes)
{
    uint64_t power = PAGE_OF_LINES;

    while (power <= bytes / 2)
        power *= 2;
    return power;
}

uint64_t registry_arena_limit(const struct config *config)
{
    return smaller(power_of_two_within(config->memory_bytes / 10 * 7), GIB(1));
}

uint64_t registry_array_elements(const struct config *config)
{
    /* STREAM's rule, bounded by what a node has to spare. Whole pages, so that no array begins
     * within another's last line. */
    uint64_t bytes = smaller(larger(4 * config->llc_bytes, MIB(16)), MIB(256));

    bytes = smaller(bytes, config->memory_bytes / 10); /* thus all three take 0.3 of it at most */
    return larger(bytes / PAGE_OF_LINES, 1) * PAGE_OF_LINES / sizeof(double);
}

/* 1024 -> 1K: how the names of Table I write sizes. */
static void size_suffix(uint64_t bytes, char *out, size_t length)
{
    if (bytes >= GIB(1))
        snprintf(out, length, "%lluG", (unsigned long long)(bytes >> 30));
    else if (bytes >= MIB(1))
        snprintf(out, length, "%lluM", (unsigned long long)(bytes >> 20));
    else
        snprintf(out, length, "%lluK", (unsigned long long)(bytes >> 10));
}

/* A set taken from the size of a cache. */
static uint64_t cache_set(uint64_t bytes, uint64_t arena_limit)
{
    uint64_t bounded = smaller(bytes, arena_limit);

    return larger(bounded / PAGE_OF_LINES, 1) * PAGE_OF_LINES;
}

static void resolve(const struct config *config, const struct microbench *kernel, const struct variant *variant,
                    struct surrogate *out)
{
    uint64_t arena = registry_arena_limit(config);
    uint64_t limit = UINT64_MAX;

    memset(out, 0, sizeof *out);
    out->kernel = kernel;
    out->variant = variant;
    snprintf(out->name, sizeof out->name, "%s.%s", kernel->prefix, variant->suffix);
    switch (variant->rule) {
    case SIZE_NONE:
        break;
    case SIZE_FIXED:
        out->size_bytes = variant->bytes;
        break;
    case SIZE_L2_HALF:
        out->size_bytes = cache_set(config->l2_bytes / 2, arena);
        break;
    case SIZE_LLC_QUARTER:
        out->size_bytes = cache_set(config->llc_bytes / 4, arena);
        break;
    case SIZE_LLC_HALF:
        out->size_bytes = cache_set(config->llc_bytes / 2, arena);
        break;
    case SIZE_LLC_TWICE:
        out->size_bytes = cache_set(config->llc_bytes * 2, arena);
        break;
    case SIZE_ARRAYS:
        out->size_bytes = variant->bytes * registry_array_elements(config) * sizeof(double);
        break;
    case SIZE_ARENA:
        limit = arena;
        out->size_bytes = smaller(variant->bytes, limit);
        break;
    case SIZE_BLOCK:
        /* Twice the block at least, or there are no offsets to choose from. */
        limit = power_of_two_within(config->io_bytes / 2);
        out->size_bytes = smaller(variant->bytes, limit);
        break;
    }
    if (variant->bytes > limit && out->size_bytes == limit)
        memcpy(out->instead_of, out->name, sizeof out->instead_of);
}

/* The name of a surrogate of this size that stands in for a larger one. */
static void name_stand_in(struct surrogate *stand_in)
{
    const char *suffix = stand_in->variant->suffix;
    /* "read.1G": the direction stays. */
    const char *dot = strrchr(suffix, '.');
    int kept = dot != NULL ? (int)(dot - suffix) + 1 : 0;
    char size[24];

    size_suffix(stand_in->size_bytes, size, sizeof size);
    snprintf(stand_in->name, sizeof stand_in->name, "%s.%.*s%s", stand_in->kernel->prefix, kept, suffix, size);
}

/* Whether the name is that of another column: of a variant as it is, or of one resolved before. */
static bool taken(const struct suite_of_node *suite, const struct surrogate *stand_in)
{
    const struct microbench *kernel = stand_in->kernel;
    char name[sizeof stand_in->name];

    for (size_t v = 0; v < kernel->variant_count; v++) {
        snprintf(name, sizeof name, "%s.%s", kernel->prefix, kernel->variants[v].suffix);
        if (strcmp(name, stand_in->name) == 0)
            return true;
    }
    return registry_find(suite, stand_in->name) != NULL;
}

/* The largest size that no other column has. False: there is none. */
static bool stand_in_for(const struct suite_of_node *suite, struct surrogate *stand_in)
{
    for (; stand_in->size_bytes >= PAGE_OF_LINES; stand_in->size_bytes /= 2) {
        name_stand_in(stand_in);
        if (!taken(suite, stand_in))
            return true;
    }
    return false;
}

void registry_resolve(const struct config *config, struct suite_of_node *suite)
{
    suite->count = 0;
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0]; k++) {
        for (size_t v = 0; v < kernels[k]->variant_count && suite->count < MOST_SURROGATES; v++) {
            struct surrogate *next = &suite->surrogates[suite->count];
            resolve(config, kernels[k], &kernels[k]->variants[v], next);
            if (next->instead_of[0] == '\0' || stand_in_for(suite, next))
                suite->count++;
        }
    }
}

const struct surrogate *registry_find(const struct suite_of_node *suite, const char *name)
{
    for (size_t i = 0; i < suite->count; i++)
        if (strcmp(suite->surrogates[i].name, name) == 0)
            return &suite->surrogates[i];
    return NULL;
}

void registry_explain_unknown(const struct suite_of_node *suite, const char *name)
{
    for (size_t i = 0; i < suite->count; i++) {
        if (strcmp(suite->surrogates[i].instead_of, name) == 0) {
            fprintf(stderr, "kongming-microbench: this node is too small for '%s': it has %s instead\n", name,
                    suite->surrogates[i].name);
            return;
        }
    }
    fprintf(stderr, "kongming-microbench: there is no surrogate '%s': see 'kongming-microbench list'\n", name);
}

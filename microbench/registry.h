/* All kernels, and the surrogates they give on a node. */
#ifndef KONGMING_REGISTRY_H
#define KONGMING_REGISTRY_H

#include "microbench.h"
#include "options.h"

/* One line a kernel: the name of its struct in its file. The order is that of `list`. */
#define KERNELS(X)      \
    X(memory_streaming) \
    X(memory_random)    \
    X(memory_decay)     \
    X(stream)           \
    X(memory_fault)     \
    X(compute_int)      \
    X(compute_float)    \
    X(os_syscall)       \
    X(os_wakeup)        \
    X(os_switch)        \
    X(iobench)          \
    X(iobench_fsync)    \
    X(metadata)         \
    X(net_loopback)     \
    X(dummy)

#define DECLARE_KERNEL(kernel) extern const struct microbench kernel##_microbench;
KERNELS(DECLARE_KERNEL)
#undef DECLARE_KERNEL

enum { MOST_SURROGATES = 64 };

struct suite_of_node {
    size_t count;
    struct surrogate surrogates[MOST_SURROGATES];
};

/* Resolves the sizes of all variants. Depends on nothing but the configuration. */
void registry_resolve(const struct config *config, struct suite_of_node *suite);

/* NULL: there is none. */
const struct surrogate *registry_find(const struct suite_of_node *suite, const char *name);

/* Says on standard error that there is no such name here, and what comes near. */
void registry_explain_unknown(const struct suite_of_node *suite, const char *name);

/* The most that the arena may hold on this node: a power of two, at most 1 GiB. */
uint64_t registry_arena_limit(const struct config *config);

/* Elements in each of the three STREAM arrays. */
uint64_t registry_array_elements(const struct config *config);

#endif

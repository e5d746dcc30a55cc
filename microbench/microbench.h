/* What a kernel is, for those who write one and for the drivers that run it.
 *
 * A kernel file ends in one `const struct microbench`. Its table of variants tells which surrogates
 * it gives; a surrogate is a variant whose size has been resolved for this node. An instance is a
 * surrogate that is set up in this process. Probe and inducer drive the same functions. */
#ifndef KONGMING_MICROBENCH_H
#define KONGMING_MICROBENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct instance;
struct resources;

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define GIB(n) ((uint64_t)(n) << 30)

enum size_rule {
    SIZE_NONE,       /* there is no size to speak of */
    SIZE_FIXED,      /* `bytes`, on every node */
    SIZE_ARENA,      /* `bytes` of the arena; another name where the node cannot hold it */
    SIZE_L2_HALF,    /* of the arena, from the node's own caches */
    SIZE_LLC_QUARTER, /* likewise */
    SIZE_LLC_HALF,   /* likewise */
    SIZE_LLC_TWICE,  /* likewise */
    SIZE_ARRAYS,     /* `bytes` is how many STREAM arrays it uses */
    SIZE_BLOCK,      /* `bytes` of the I/O file at a time; another name where the file is small */
};

enum suite { SUITE_QUICK = 1, SUITE_STANDARD = 2, SUITE_FULL = 4, SUITE_HIDDEN = 8 };
enum { IN_ALL = SUITE_QUICK | SUITE_STANDARD | SUITE_FULL, NOT_QUICK = SUITE_STANDARD | SUITE_FULL };

/* For bytes_per_op: what one operation moves is the size itself. */
#define BYTES_ARE_SIZE UINT64_MAX

struct variant {
    const char *suffix; /* the name is PREFIX.SUFFIX */
    enum size_rule rule;
    uint64_t bytes;        /* as the rule has it */
    const char *family;    /* cache, memory, compute, os, read, write, metadata, network */
    unsigned suites;       /* of enum suite */
    bool paper;            /* one of the 18 in Table I */
    int mode;              /* the kernel's own: which of its variants this is */
    uint64_t bytes_per_op; /* that one operation moves; 0: no bandwidth to speak of */
    const char *description;
};

struct microbench {
    const char *prefix;
    const char *op; /* what one operation is, in words */
    const struct variant *variants;
    size_t variant_count;
    const char *no_inducer_reason; /* NULL: it makes a load */
    uint64_t whole_ops;            /* a chunk with fewer operations is partial; 0: there is no such thing */
    bool self_timed;               /* run() leaves its own nanoseconds in instance.own_ns */

    /* Each returns 0, or fail(). All but setup, run and teardown may be NULL. */
    int (*setup)(struct instance *self);                 /* memory prefaulted, files there */
    int (*warm)(struct instance *self);                  /* untimed, once a chunk: until warm_until_ns */
    int (*refill)(struct instance *self);                /* untimed, before each batch: may set max_steps */
    int (*run)(struct instance *self, uint64_t steps);   /* timed: exactly so many, at most max_steps */
    int (*verify)(struct instance *self);                /* outside the timing, after a chunk */
    int (*rest)(struct instance *self);                  /* untimed, after a chunk */
    void (*teardown)(struct instance *self);             /* also after a setup that failed half way */
};

struct surrogate {
    char name[48];
    char instead_of[48]; /* the name it would have on a larger node; empty: this is it */
    const struct microbench *kernel;
    const struct variant *variant;
    uint64_t size_bytes; /* 0: none */
};

struct instance {
    const struct surrogate *surrogate;
    struct resources *shared;
    void *state;            /* the kernel's own, of which teardown disposes */
    double ops_per_step;    /* 1, but for operations so long that they are run in pieces */
    uint64_t max_steps;     /* that run() can be asked for after the last refill() */
    uint64_t batch_steps;   /* the driver's: how many make a batch of the right length */
    uint64_t warm_until_ns; /* by when warm() must return, if its set is large */
    uint64_t deadline_ns;   /* the end of the chunk: no refill() may last far into the rest */
    uint64_t own_ns;        /* see self_timed */
    int direct;             /* 1: past the page cache, 0: through it, -1: not about files */
    char error[320];        /* one sentence, after a function has returned -1 */
};

/* Leaves the sentence in the instance and returns -1. */
int fail(struct instance *self, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The value is needed, says this, and how it came about cannot be known. */
#define SINK(value) __asm__ volatile("" : : "g"(value) : "memory")

/* What has been written to memory so far is read by somebody, says this. */
#define MEMORY_IS_READ() __asm__ volatile("" : : : "memory")

/* Set once this process has been told to end: loops that make files must look at it. */
bool stopping(void);

#endif

/* What the subcommands share on their command lines. */
#ifndef KONGMING_OPTIONS_H
#define KONGMING_OPTIONS_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

struct config {
    uint64_t l2_bytes;
    uint64_t llc_bytes;
    uint64_t memory_bytes; /* what the suite may take of this node's memory; fixed per node */
    uint64_t io_bytes;     /* size of the file for block I/O; fixed per node */
    const char *dir;
    int cpu;         /* -1: not pinned */
    int lifeline;    /* -1: none */
    unsigned copies; /* processes like this one that share what is free at the moment */
};

#define CONFIG_DEFAULTS                                                                                      \
    ((struct config){.l2_bytes = UINT64_C(1) << 20,                                                          \
                     .llc_bytes = UINT64_C(32) << 20,                                                        \
                     .memory_bytes = UINT64_C(2) << 30,                                                      \
                     .io_bytes = UINT64_C(2) << 30,                                                          \
                     .dir = ".",                                                                             \
                     .cpu = -1,                                                                              \
                     .lifeline = -1,                                                                         \
                     .copies = 1})

/* Values beyond char: the shared ones first, a subcommand's own from OPTION_OWN on. */
enum option_value {
    OPTION_L2 = 256,
    OPTION_LLC,
    OPTION_MEMORY,
    OPTION_IO_BYTES,
    OPTION_DIR,
    OPTION_CPU,
    OPTION_LIFELINE,
    OPTION_OWN,
};

/* clang-format off */
#define SHARED_OPTIONS                                          \
    {"l2", required_argument, NULL, OPTION_L2},                 \
    {"llc", required_argument, NULL, OPTION_LLC},               \
    {"memory", required_argument, NULL, OPTION_MEMORY},         \
    {"io-bytes", required_argument, NULL, OPTION_IO_BYTES},     \
    {"dir", required_argument, NULL, OPTION_DIR},               \
    {"cpu", required_argument, NULL, OPTION_CPU},               \
    {"lifeline", required_argument, NULL, OPTION_LIFELINE},     \
    {"help", no_argument, NULL, 'h'}
/* clang-format on */

#define SHARED_OPTIONS_HELP                                                                                  \
    "  --l2 BYTES, --llc BYTES  sizes of the caches (0: unknown, taken as 1 MiB and 32 MiB)\n"               \
    "  --memory BYTES           what the suite may take of this node's memory (default 2 GiB)\n"             \
    "  --io-bytes BYTES         size of the file for block I/O (default 2 GiB)\n"                            \
    "  --dir DIR                folder for files (default: the current one)\n"                               \
    "  --cpu N                  stay on this CPU\n"                                                          \
    "  --lifeline FD            stop when this descriptor reaches its end\n"

/* Takes one shared option. -1, with a sentence on standard error, when its value is wrong. */
int option_shared(struct config *config, int value, const char *argument);

/* Numbers, whole or not, within bounds. -1, with a sentence on standard error, when wrong. */
int option_unsigned(const char *name, const char *text, uint64_t least, uint64_t most, uint64_t *out);
int option_seconds(const char *name, const char *text, double *out);
int option_share(const char *name, const char *text, double *out);

/* Stays on that CPU from now on, with all threads still to come. -1 with a sentence on stderr. */
int pin_to_cpu(int cpu);

#endif

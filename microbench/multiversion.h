/* MULTIVERSION: a function that is compiled twice, for machines with wider vectors and for all; the
 * loader picks. Elsewhere the one portable version is there. Not for AVX-512: stores of that width
 * made the STREAM loops a tenth slower, and no loop here gains by it. */
#ifndef KONGMING_MULTIVERSION_H
#define KONGMING_MULTIVERSION_H

/* Needs indirect functions, thus glibc (or a libc that says it is alike). Sanitizers instrument the
 * resolvers, which run before their own set-up. */
#include <features.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute) && !defined(MICROBENCH_SANITIZED)
#if __has_attribute(target_clones)
#define MULTIVERSION __attribute__((target_clones("avx2", "default")))
#endif
#endif
#ifndef MULTIVERSION
#define MULTIVERSION
#endif

#endif

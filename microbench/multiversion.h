/* MULTIVERSION: a function that is compiled several times, for the vector units that this kind of
 * machine may have; the loader picks. Elsewhere the one portable version is there. */
#ifndef KONGMING_MULTIVERSION_H
#define KONGMING_MULTIVERSION_H

/* Needs indirect functions, thus glibc (or a libc that says it is alike). Sanitizers instrument the
 * resolvers, which run before their own set-up. */
#include <features.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__has_attribute) && !defined(MICROBENCH_SANITIZED)
#if __has_attribute(target_clones)
#define MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef MULTIVERSION
#define MULTIVERSION
#endif

#endif

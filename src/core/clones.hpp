// Loops that are compiled once for each processor generation and chosen when the library loads. Clones give the same
// bits: no contraction to fma, no reordering of floating-point sums, so only exact operations are spread over lanes.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && \
    !defined(__SANITIZE_ADDRESS__)
#define EXPERTMISS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EXPERTMISS_CLONES
#endif

// Macros for hot loops: one body for every generation of processors.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define BUILT_FOR(processor) __attribute__((target(processor)))
// The dynamic loader picks the body for this machine.
#define FOR_EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_CPU
#endif
// Inlines into each of these bodies: a function that is not inlined is built for the oldest processor only.
#define INLINE __attribute__((always_inline)) inline
#define INLINE_LAMBDA __attribute__((always_inline))

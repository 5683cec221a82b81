// How hot loops are built: one body for every generation of processors.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define BUILT_FOR(processor) __attribute__((target(processor)))
// The loader picks the one for this machine.
#define FOR_EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_CPU
#endif
// Into each of the bodies: what stays a function of its own is built for the oldest processor alone.
#define INLINE __attribute__((always_inline)) inline
#define INLINE_LAMBDA __attribute__((always_inline))

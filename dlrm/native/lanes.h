// Vectors as wide as the processor has them, for operators that need a body for each width: the compiler splits wider
// ones by way of memory, which is up to 25 times slower, and narrower ones leave half of the processor idle.
#pragma once

#include <utility>

#include "every_cpu.h"

namespace dlrm_dense {

template <int width>
struct Vector;
template <>
struct Vector<16> {
  using type = float __attribute__((vector_size(64), aligned(4), may_alias));
};
template <>
struct Vector<8> {
  using type = float __attribute__((vector_size(32), aligned(4), may_alias));
};
template <>
struct Vector<4> {
  using type = float __attribute__((vector_size(16), aligned(4), may_alias));
};

template <int width>
using Lanes = typename Vector<width>::type;

template <int width>
INLINE Lanes<width>& lanes(float* place) {
  return *reinterpret_cast<Lanes<width>*>(place);
}
template <int width>
INLINE const Lanes<width>& lanes(const float* place) {
  return *reinterpret_cast<const Lanes<width>*>(place);
}

// One exchange of a transposition: swaps the odd groups of `group` lanes of `a` with the even groups of `b`.
template <int width, int group, int... lane>
INLINE void exchange(Lanes<width>& a, Lanes<width>& b, std::integer_sequence<int, lane...>) {
  const Lanes<width> first = __builtin_shufflevector(a, b, (lane & group ? width + lane - group : lane)...);
  b = __builtin_shufflevector(a, b, (lane & group ? width + lane : lane + group)...);
  a = first;
}

// Transposes a square of `width` rows in registers.
template <int width, int group = 1>
INLINE void transpose(Lanes<width>* rows) {
#pragma GCC unroll 16
  for (int row = 0; row < width; ++row)
    if (!(row & group)) exchange<width, group>(rows[row], rows[row + group], std::make_integer_sequence<int, width>());
  if constexpr (2 * group < width) transpose<width, 2 * group>(rows);
}

#ifdef BUILT_FOR
template <typename Body>
BUILT_FOR("arch=x86-64-v4") void with_16_lanes(const Body& body) {
  body.template operator()<16>();
}
template <typename Body>
BUILT_FOR("arch=x86-64-v3") void with_8_lanes(const Body& body) {
  body.template operator()<8>();
}
#endif

// Calls `body.operator()<width>()`. The body must be an INLINE_LAMBDA, and the functions that it calls INLINE.
template <typename Body>
void with_lanes(const Body& body) {
#ifdef BUILT_FOR
  if (__builtin_cpu_supports("x86-64-v4")) return with_16_lanes(body);
  if (__builtin_cpu_supports("x86-64-v3")) return with_8_lanes(body);
#endif
  body.template operator()<4>();
}

}  // namespace dlrm_dense

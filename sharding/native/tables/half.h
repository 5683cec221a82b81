// Numbers of 16 bits, widened by integer arithmetic, for which every processor has vector instructions.
#pragma once

#include <bit>
#include <cstdint>

#include "every_cpu.h"

namespace dlrm_tables {

// IEEE 754 binary16.
struct Half {
  uint16_t bits;
};

// The upper half of an IEEE 754 binary32.
struct BFloat16 {
  uint16_t bits;
};

INLINE float to_float(float value) { return value; }
INLINE double to_float(double value) { return value; }
INLINE float to_float(BFloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

INLINE float to_float(Half half) {
  constexpr uint32_t SMALLEST_NORMAL = 1u << 10;
  constexpr uint32_t INFINITE = 31u << 10;
  constexpr uint32_t EXPONENT_SHIFT = (127u - 15u) << 23;
  constexpr uint32_t ONE_HALF = 126u << 23;  // its last bit is the smallest Half
  const uint32_t bits = half.bits;
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + EXPONENT_SHIFT;
  const uint32_t special = normal + EXPONENT_SHIFT;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(ONE_HALF + magnitude) - 0.5f);
  const uint32_t positive = magnitude >= INFINITE ? special : magnitude >= SMALLEST_NORMAL ? normal : subnormal;
  return std::bit_cast<float>(positive | (bits & 0x8000u) << 16);
}

}  // namespace dlrm_tables

// Rows of int8: C numbers q of 8 bits, then a scale s and an offset z in fp32. They stand for x = s q + z, FBGEMM's
// row-wise format (Khudia et al. 2021, arXiv 2101.05615), with z = min x and s = (max x - min x) / 255.
//
// Rounding is stochastic (Gupta et al. 2015, arXiv 1502.02551): x lies between two numbers of the grid, and takes the
// upper one with the probability of its distance from the lower one, so that its expectation is x. The nearest number
// would swallow every update below s / 2. The random bits are a hash of key, row and column.
//
// All processors compute the same bits, with or without fused multiply-adds: s has 16 significant bits, so that s q is
// exact, and places on the grid are fixed-point numbers. s is rounded up: no x lies outside of the grid.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "every_cpu.h"

namespace dlrm_tables {

constexpr int64_t GRID_BYTES = 8;

struct Grid {
  float scale;
  float offset;
};

INLINE Grid grid_of(const uint8_t* row, int64_t num_columns) {
  Grid grid;
  std::memcpy(&grid, row + num_columns, GRID_BYTES);
  return grid;
}

INLINE void decode_row(const uint8_t* __restrict row, float* __restrict values, int64_t num_columns) {
  const Grid grid = grid_of(row, num_columns);
  for (int64_t c = 0; c < num_columns; ++c) values[c] = grid.scale * static_cast<float>(row[c]) + grid.offset;
}

// Random bits of the columns of one row.
struct RowRandom {
  uint32_t first;

  // key: of the table and the update. The generator of rows is splitmix64, as in sharding/counter_random.py.
  INLINE RowRandom(uint64_t key, int64_t row) {
    uint64_t bits = key + static_cast<uint64_t>(row) * 0x9E3779B97F4A7C15u;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
    first = static_cast<uint32_t>((bits ^ bits >> 31) >> 32);
  }

  // The finalizer of MurmurHash3, of 32 bits, which every processor multiplies in vectors.
  INLINE uint32_t bits_of(int64_t column) const {
    uint32_t bits = first + static_cast<uint32_t>(column) * 0x9E3779B9u;
    bits = (bits ^ bits >> 16) * 0x85EBCA6Bu;
    bits = (bits ^ bits >> 13) * 0xC2B2AE35u;
    return bits ^ bits >> 16;
  }
};

// The grid of a row whose numbers are from `low` to `high`.
INLINE Grid make_grid(float low, float high) {
  constexpr float SMALLEST_SCALE = 1e-30f;  // below, places on the grid would be infinite
  // Rounded up to 16 bits; two units of the last place above one of them are the rounding of a row on its own grid.
  const uint32_t bits = (std::bit_cast<uint32_t>((high - low) / 255.0f) + 0xFDu) & ~0xFFu;
  const float scale = std::bit_cast<float>(bits);
  return {scale < SMALLEST_SCALE ? 0.0f : scale, low + 0.0f};
}

INLINE void encode_row(const float* __restrict values, uint8_t* __restrict row, int64_t num_columns,
                       RowRandom random) {
  constexpr int FRACTION_BITS = 22;
  constexpr float ONE = 1 << FRACTION_BITS;
  float low = values[0], high = values[0];
  // 0, or NaN if a number is infinite or NaN: the row then is, as one of fp32 would be, and the next step is dropped.
  float spoilt = 0;
#pragma omp simd reduction(min : low) reduction(max : high) reduction(+ : spoilt)
  for (int64_t c = 0; c < num_columns; ++c) {
    spoilt += values[c] * 0.0f;
    low = values[c] < low ? values[c] : low;
    high = values[c] > high ? values[c] : high;
  }
  Grid grid = make_grid(low, high);
  grid.scale += spoilt;
  const float places_per_unit = grid.scale > 0 ? ONE / grid.scale : 0.0f;
  for (int64_t c = 0; c < num_columns; ++c) {
    const float place = (values[c] - grid.offset) * places_per_unit;
    const auto fixed = static_cast<int32_t>(place < 255 * ONE ? place : 255 * ONE);
    const auto fraction = static_cast<int32_t>(random.bits_of(c) >> (32 - FRACTION_BITS));
    row[c] = static_cast<uint8_t>((fixed + fraction) >> FRACTION_BITS);
  }
  std::memcpy(row + num_columns, &grid, GRID_BYTES);
}

}  // namespace dlrm_tables

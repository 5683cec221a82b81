// Sums of the rows that bags name. Rows are in random order in memory: each is prefetched AHEAD ids before its turn.
#include "pool.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "int8_row.h"
#include "rows.h"
#include "for_each_task.h"

namespace dlrm_tables {

namespace {

constexpr int64_t AHEAD = 16;
constexpr int64_t BAGS_PER_TASK = 256;

// Vectors as wide as the processor has, or half as wide: the compiler would split wider ones by way of memory.
#ifdef __x86_64__
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif
using Lanes = float __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

// Sum of a bag. A row whose length is known at compile time stays in registers until the bag is complete.
template <int C>
struct Sum {
  Lanes lanes[C / LANES];

  INLINE Sum(const float* out, int64_t, bool accumulates) {
    for (int k = 0; k < C / LANES; ++k) lanes[k] = accumulates ? reinterpret_cast<const Lanes*>(out)[k] : Lanes{};
  }
  INLINE void add(const float* row) {
    for (int k = 0; k < C / LANES; ++k) lanes[k] += reinterpret_cast<const Lanes*>(row)[k];
  }
  INLINE void add(const uint8_t* row) {
    float values[C];
    decode_row(row, values, C);
    add(values);
  }
  INLINE void store(float* out) const {
    for (int k = 0; k < C / LANES; ++k) reinterpret_cast<Lanes*>(out)[k] = lanes[k];
  }
};

template <>
struct Sum<0> {
  float* out;
  int64_t num_columns;

  INLINE Sum(float* place, int64_t length, bool accumulates) : out(place), num_columns(length) {
    if (!accumulates) std::memset(out, 0, num_columns * sizeof(float));
  }
  INLINE void add(const float* row) {
    for (int64_t c = 0; c < num_columns; ++c) out[c] += row[c];
  }
  INLINE void add(const uint8_t* row) {
    const Grid grid = grid_of(row, num_columns);
    for (int64_t c = 0; c < num_columns; ++c) out[c] += grid.scale * static_cast<float>(row[c]) + grid.offset;
  }
  INLINE void store(float*) const {}
};

// W: of a weight in memory, float or uint8_t.
template <int C, typename W>
INLINE void pool_bags(const Pooling& pooling, int64_t begin, int64_t end) {
  const int64_t num_columns = C ? C : pooling.num_columns;
  const auto [ids, offsets, num_bags] = pooling.bags;
  const RowRange range = pooling.range;
  const W* const weights = static_cast<const W*>(pooling.weights);
  const int64_t row_length = num_columns + (std::is_same_v<W, uint8_t> ? GRID_BYTES : 0);
  const int64_t last = offsets[end];
  const auto prefetch_row = [&](int64_t place) INLINE_LAMBDA {
    const uint64_t row = range.row_of(ids[place]);
    if (range.has(row)) prefetch<Intent::read>(weights + row * row_length, row_length);
  };
  int64_t prefetched = offsets[begin];
  for (; prefetched < std::min(offsets[begin] + AHEAD, last); ++prefetched) prefetch_row(prefetched);
  for (int64_t bag = begin; bag < end; ++bag) {
    float* const out = pooling.out + bag * pooling.out_stride;
    Sum<C> sum(out, num_columns, pooling.accumulates);
    for (int64_t place = offsets[bag]; place < offsets[bag + 1]; ++place) {
      if (prefetched < last) prefetch_row(prefetched++);
      const uint64_t row = range.row_of(ids[place]);
      if (range.has(row)) sum.add(weights + row * row_length);
    }
    sum.store(out);
  }
}

}  // namespace

FOR_EVERY_CPU void pool_some(const Pooling& pooling, int64_t begin, int64_t end) {
  for_columns(pooling.num_columns, [&]<int C>() INLINE_LAMBDA {
    pooling.is_int8 ? pool_bags<C, uint8_t>(pooling, begin, end) : pool_bags<C, float>(pooling, begin, end);
  });
}

void pool(const Pooling& pooling) {
  const int64_t num_bags = pooling.bags.num_bags;
  for_each_task((num_bags + BAGS_PER_TASK - 1) / BAGS_PER_TASK, [&](int64_t task) {
    pool_some(pooling, task * BAGS_PER_TASK, std::min(num_bags, (task + 1) * BAGS_PER_TASK));
  });
}

}  // namespace dlrm_tables

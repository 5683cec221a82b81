#pragma once

#include <cstdint>

#include "bags.h"

namespace dlrm_tables {

struct Pooling {
  const void* weights;  // [R, C], or [R, C + GRID_BYTES] in int8
  bool is_int8;
  RowRange range;
  int64_t num_columns;
  Bags bags;
  float* out;  // [m, C]
  int64_t out_stride;
  bool accumulates;
};

// out[j] = sum of the rows that bag j names, or += where it accumulates.
void pool(const Pooling& pooling);

}  // namespace dlrm_tables

#pragma once

#include <cstdint>
#include <vector>

#include "occurrences.h"
#include "optimizer.h"

namespace dlrm_tables {

// Of the bags of one source.
struct GradientRows {
  const void* rows;  // [m, C]
  int64_t stride;    // elements
};

struct Update {
  float* weights;  // [R, C]
  float* state;
  RowRange range;
  int64_t num_columns;
  Optimizer optimizer;
  Sources sources;
  std::vector<GradientRows> gradients;
  bool is_half;
  float gradient_factor;
};

// Each row that the bags name moves once.
void update(const Update& update);

}  // namespace dlrm_tables

#pragma once

#include <cstdint>
#include <vector>

#include "occurrences.h"
#include "optimizer.h"

namespace dlrm_tables {

enum class NumberFormat { fp32, fp16, bf16 };

// Gradients of the pooled embeddings of one source's bags.
struct GradientRows {
  const void* rows;  // [m, C], in the format of the update
  int64_t stride;    // elements
};

struct Update {
  float* weights;         // [R, C]; null if the rows are int8
  uint8_t* int8_weights;  // [R, C + GRID_BYTES], or null
  uint64_t rounding_key;  // of int8 rows
  float* state;
  RowRange range;
  int64_t num_columns;
  Optimizer optimizer;
  Sources sources;
  std::vector<GradientRows> gradients;
  NumberFormat gradient_format;
  float gradient_multiplier;
};

// Updates each row that the bags name once, by the sum of its gradients times `gradient_multiplier`.
void update(const Update& update);

}  // namespace dlrm_tables

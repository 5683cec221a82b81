// Refusals of arguments, by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bags.h"

namespace dlrm_tables {

// [R, C] fp32, contiguous.
void check_weights(const at::Tensor& weights);

// One row each of C numbers for `num_rows` bags, each row in one piece.
void check_rows(const at::Tensor& rows, const std::string& name, int64_t num_rows, int64_t num_columns);

// Raises too where an offset points outside of ids or before the one ahead of it.
Bags checked_bags(const at::Tensor& ids, const at::Tensor& offsets, const std::string& suffix);

RowRange checked_range(const at::Tensor& weights, int64_t first_row);

}  // namespace dlrm_tables

// Checks of arguments; errors name the argument.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "bags.h"

namespace dlrm_tables {

// Raises unless `weights` is [R, C] fp32 or [R, C + GRID_BYTES] uint8, contiguous. Returns C.
int64_t checked_columns(const at::Tensor& weights);

// Raises unless `rows` is [num_rows, num_columns], the numbers of each row contiguous.
void check_rows(const at::Tensor& rows, const std::string& name, int64_t num_rows, int64_t num_columns);

// Raises where an offset points outside of `ids`, or is less than the offset before it.
Bags checked_bags(const at::Tensor& ids, const at::Tensor& offsets, const std::string& suffix);

RowRange checked_range(const at::Tensor& weights, int64_t first_row);

}  // namespace dlrm_tables

#include "check.h"

#include "int8_row.h"

namespace dlrm_tables {

namespace {

// A row, and the number of a bag over all sources, each take 32 bits of an Occurrence.
constexpr int64_t MAX_ROWS = int64_t{1} << 32;

void check_on_cpu(const at::Tensor& tensor, const std::string& name) {
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), name, ": on ", tensor.device(), ", must be on the CPU");
}

void check_places(const at::Tensor& tensor, const std::string& name) {
  check_on_cpu(tensor, name);
  TORCH_CHECK_TYPE(tensor.scalar_type() == at::kLong, name, ": ", tensor.scalar_type(), ", must be int64");
  TORCH_CHECK_VALUE(tensor.dim() == 1, name, ": shape ", tensor.sizes(), ", must have one dimension");
  TORCH_CHECK_VALUE(tensor.is_contiguous(), name, ": must be contiguous");
}

}  // namespace

int64_t checked_columns(const at::Tensor& weights) {
  check_on_cpu(weights, "weights");
  const bool is_int8 = weights.scalar_type() == at::kByte;
  TORCH_CHECK_TYPE(is_int8 || weights.scalar_type() == at::kFloat, "weights: ", weights.scalar_type(),
                   ", must be float32, or uint8 for rows of int8");
  TORCH_CHECK_VALUE(weights.dim() == 2, "weights: shape ", weights.sizes(), ", must be [rows, columns]");
  TORCH_CHECK_VALUE(weights.is_contiguous(), "weights: must be contiguous");
  TORCH_CHECK_VALUE(weights.size(0) <= MAX_ROWS, "weights: ", weights.size(0), " rows, at most ", MAX_ROWS);
  if (!is_int8) return weights.size(1);
  TORCH_CHECK_VALUE(weights.size(1) > GRID_BYTES, "weights: shape ", weights.sizes(), ", must have ", GRID_BYTES,
                    " bytes more than columns");
  return weights.size(1) - GRID_BYTES;
}

void check_rows(const at::Tensor& rows, const std::string& name, int64_t num_rows, int64_t num_columns) {
  check_on_cpu(rows, name);
  TORCH_CHECK_VALUE(rows.dim() == 2 && rows.size(0) == num_rows && rows.size(1) == num_columns, name, ": shape ",
                    rows.sizes(), ", must be [", num_rows, ", ", num_columns,
                    "] for as many bags and the columns of weights");
  TORCH_CHECK_VALUE(num_columns < 2 || num_rows == 0 || rows.stride(1) == 1, name,
                    ": the numbers of a row must lie side by side, stride(1) is ", rows.stride(1));
}

Bags checked_bags(const at::Tensor& ids, const at::Tensor& offsets, const std::string& suffix) {
  check_places(ids, "ids" + suffix);
  check_places(offsets, "offsets" + suffix);
  TORCH_CHECK_VALUE(offsets.numel() >= 1, "offsets", suffix, ": empty, must be one more than there are bags");
  const int64_t num_bags = offsets.numel() - 1;
  const int64_t* const places = offsets.const_data_ptr<int64_t>();
  TORCH_CHECK_INDEX(places[0] >= 0, "offsets", suffix, ": the first is ", places[0], ", must not be negative");
  bool is_sorted = true;
  for (int64_t bag = 0; bag < num_bags; ++bag) is_sorted &= places[bag] <= places[bag + 1];
  TORCH_CHECK_INDEX(is_sorted, "offsets", suffix, ": some offset is less than the one before, must not decrease");
  TORCH_CHECK_INDEX(places[num_bags] <= ids.numel(), "offsets", suffix, ": the last is ", places[num_bags],
                    ", but there are ", ids.numel(), " ids");
  return {ids.const_data_ptr<int64_t>(), places, num_bags};
}

RowRange checked_range(const at::Tensor& weights, int64_t first_row) {
  TORCH_CHECK_VALUE(first_row >= 0, "first_row: ", first_row, ", must not be negative");
  return {first_row, weights.size(0)};
}

}  // namespace dlrm_tables

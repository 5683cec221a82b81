// The operators as torch knows them: names, arguments, and their checks.
#include <torch/library.h>

#include <bit>
#include <limits>
#include <string>

#include "check.h"
#include "pool.h"
#include "update.h"

namespace dlrm_tables {

namespace {

void pool_tensors(const at::Tensor& weights, const at::Tensor& ids, const at::Tensor& offsets, int64_t first_row,
                  at::Tensor out, bool accumulate) {
  const int64_t num_columns = checked_columns(weights);
  const RowRange range = checked_range(weights, first_row);
  const Bags bags = checked_bags(ids, offsets, "");
  TORCH_CHECK_TYPE(out.scalar_type() == at::kFloat, "out: ", out.scalar_type(), ", must be float32");
  check_rows(out, "out", bags.num_bags, num_columns);
  TORCH_CHECK_VALUE(bags.num_bags < 2 || out.stride(0) >= num_columns, "out: its rows overlap, stride(0) is ",
                    out.stride(0));
  if (out.numel() == 0) return;
  pool({.weights = weights.const_data_ptr(),
        .is_int8 = weights.scalar_type() == at::kByte,
        .range = range,
        .num_columns = num_columns,
        .bags = bags,
        .out = out.mutable_data_ptr<float>(),
        .out_stride = out.stride(0),
        .accumulates = accumulate});
}

Method method_of(c10::string_view name) {
  if (name == "sgd") return Method::sgd;
  if (name == "rowwise_adagrad") return Method::rowwise_adagrad;
  if (name == "adagrad") return Method::adagrad;
  TORCH_CHECK_VALUE(false, "optimizer: ", name, ", must be sgd, rowwise_adagrad or adagrad");
}

void check_state(const at::Tensor& state, int64_t num_rows, int64_t num_columns, Method method) {
  TORCH_CHECK_VALUE(state.device().is_cpu(), "state: on ", state.device(), ", must be on the CPU");
  if (method == Method::sgd) {
    TORCH_CHECK_VALUE(state.numel() == 0, "state: shape ", state.sizes(), ", must be empty for sgd");
    return;
  }
  const int64_t sizes[] = {num_rows, num_columns};
  const at::IntArrayRef shape(sizes, method == Method::adagrad ? 2 : 1);
  TORCH_CHECK_TYPE(state.scalar_type() == at::kFloat, "state: ", state.scalar_type(), ", must be float32");
  TORCH_CHECK_VALUE(state.sizes() == shape, "state: shape ", state.sizes(), ", must be ", shape);
  TORCH_CHECK_VALUE(state.is_contiguous(), "state: must be contiguous");
}

int bits_for(int64_t count) { return count > 1 ? std::bit_width(static_cast<uint64_t>(count - 1)) : 0; }

Sources checked_sources(at::TensorList ids, at::TensorList offsets) {
  Sources sources;
  for (size_t source = 0; source < ids.size(); ++source) {
    sources.bags.push_back(checked_bags(ids[source], offsets[source], "[" + std::to_string(source) + "]"));
    sources.num_bag_bits = std::max(sources.num_bag_bits, bits_for(sources.bags.back().num_bags));
  }
  TORCH_CHECK_VALUE(sources.num_bag_bits + bits_for(static_cast<int64_t>(ids.size())) <= 32, "ids: ", ids.size(),
                    " sources of up to 2^", sources.num_bag_bits, " bags, at most 2^32 bags together");
  return sources;
}

std::vector<GradientRows> checked_gradients(at::TensorList gradients, const Sources& sources, int64_t num_columns) {
  std::vector<GradientRows> rows;
  for (size_t source = 0; source < gradients.size(); ++source) {
    const at::Tensor& gradient = gradients[source];
    const std::string name = "gradients[" + std::to_string(source) + "]";
    const at::ScalarType dtype = gradient.scalar_type();
    TORCH_CHECK_TYPE(dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16, name, ": ", dtype,
                     ", must be float32, float16 or bfloat16");
    TORCH_CHECK_TYPE(dtype == gradients[0].scalar_type(), name, ": ", dtype, ", must be as gradients[0], ",
                     gradients[0].scalar_type());
    check_rows(gradient, name, sources.bags[source].num_bags, num_columns);
    rows.push_back({gradient.const_data_ptr(), gradient.stride(0)});
  }
  return rows;
}

NumberFormat format_of(at::ScalarType dtype) {
  if (dtype == at::kHalf) return NumberFormat::fp16;
  return dtype == at::kBFloat16 ? NumberFormat::bf16 : NumberFormat::fp32;
}

void update_tensors(at::Tensor weights, at::Tensor state, at::TensorList ids, at::TensorList offsets,
                    at::TensorList gradients, int64_t first_row, c10::string_view optimizer, double learning_rate,
                    double eps, double gradient_multiplier, double clip_ratio, double clip_floor,
                    double count_exponent, int64_t rounding_key) {
  const int64_t num_columns = checked_columns(weights);
  const RowRange range = checked_range(weights, first_row);
  const Method method = method_of(optimizer);
  check_state(state, weights.size(0), num_columns, method);
  TORCH_CHECK_VALUE(offsets.size() == ids.size(), "offsets: ", offsets.size(), " tensors, must be ", ids.size(),
                    ", one for each of ids");
  TORCH_CHECK_VALUE(gradients.size() == ids.size(), "gradients: ", gradients.size(), " tensors, must be ", ids.size(),
                    ", one for each of ids");
  Sources sources = checked_sources(ids, offsets);
  std::vector<GradientRows> rows = checked_gradients(gradients, sources, num_columns);
  if (ids.empty() || weights.numel() == 0) return;
  const bool is_int8 = weights.scalar_type() == at::kByte;
  update({.weights = is_int8 ? nullptr : weights.mutable_data_ptr<float>(),
          .int8_weights = is_int8 ? weights.mutable_data_ptr<uint8_t>() : nullptr,
          .rounding_key = static_cast<uint64_t>(rounding_key),
          .state = method == Method::sgd ? nullptr : state.mutable_data_ptr<float>(),
          .range = range,
          .num_columns = num_columns,
          .optimizer = {.method = method,
                        .learning_rate = static_cast<float>(learning_rate),
                        .eps = static_cast<float>(eps),
                        .row_clip = {static_cast<float>(clip_ratio), static_cast<float>(clip_floor)},
                        .count_exponent = static_cast<float>(count_exponent)},
          .sources = std::move(sources),
          .gradients = std::move(rows),
          .gradient_format = format_of(gradients[0].scalar_type()),
          .gradient_multiplier = static_cast<float>(gradient_multiplier)});
}

}  // namespace

TORCH_LIBRARY(dlrm_tables, library) {
  library.def(
      "pool(Tensor weights, Tensor ids, Tensor offsets, int first_row, Tensor(a!) out, bool accumulate) -> ()");
  library.def(
      "update(Tensor(a!) weights, Tensor(b!) state, Tensor[] ids, Tensor[] offsets, Tensor[] gradients, "
      "int first_row, str optimizer, float learning_rate, float eps, float gradient_multiplier, "
      "float clip_ratio=0.0, float clip_floor=-1.0, float count_exponent=0.0, int rounding_key=0) -> ()");
}

TORCH_LIBRARY_IMPL(dlrm_tables, CPU, library) {
  library.impl("pool", pool_tensors);
  library.impl("update", update_tensors);
}

}  // namespace dlrm_tables

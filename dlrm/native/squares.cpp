// Squares d^2 of the gradient d of a linear layer's output, sample by sample, and their sums over samples, which are
// those of the bias: in one pass over the gradient of the output after the layer's ReLU. A column is summed in the
// order of its samples, so that the result does not depend on the number of threads.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "checks.h"
#include "every_cpu.h"

namespace dlrm_dense {

namespace {

constexpr int64_t ROWS_A_SUM = 128;  // rows summed in fp32 before they join the total, which limits the rounding error
constexpr int64_t COLUMNS = 64;      // columns of a task: whole cache lines of bf16

INLINE float to_float(float number) { return number; }
INLINE float to_float(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }
template <typename T>
INLINE T rounded(float number) {
  if constexpr (std::is_same_v<T, float>) {
    return number;
  } else {
    // Rounds to nearest, ties to even. NaN stays NaN: its low bits are 0, since it came from bf16.
    const uint32_t bits = std::bit_cast<uint32_t>(number);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

// Tensors of one call. T: float, or uint16_t for bf16.
template <typename T>
struct Squares {
  const T* gradient;  // [c, n]
  const T* outputs;   // [c, n], or null without a ReLU
  T* squares;         // [c, n]
  float* sums;        // [n], or null without a bias
  int64_t num_samples, num_columns;
};

template <typename T, bool is_activated>
INLINE void square_rows(const Squares<T>& call, int64_t column, int count, int64_t begin, int64_t end, float* sums) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t first = row * call.num_columns + column;
    const T* gradient = call.gradient + first;
    const T* outputs = is_activated ? call.outputs + first : nullptr;
    T* squares = call.squares + first;
    for (int i = 0; i < count; ++i) {
      float number = to_float(gradient[i]);
      if constexpr (is_activated) number = to_float(outputs[i]) <= 0 ? 0.0f : number;
      squares[i] = rounded<T>(number * number);
      sums[i] += to_float(squares[i]);
    }
  }
}

template <typename T, bool is_activated>
INLINE void square_columns(const Squares<T>& call, int64_t column) {
  const int count = static_cast<int>(std::min(COLUMNS, call.num_columns - column));
  float total[COLUMNS] = {};
  for (int64_t begin = 0; begin < call.num_samples; begin += ROWS_A_SUM) {
    const int64_t end = std::min(call.num_samples, begin + ROWS_A_SUM);
    float sums[COLUMNS] = {};
    // With a count that the compiler knows, it vectorises the inner loop.
    if (count == COLUMNS)
      square_rows<T, is_activated>(call, column, COLUMNS, begin, end, sums);
    else
      square_rows<T, is_activated>(call, column, count, begin, end, sums);
    for (int i = 0; i < count; ++i) total[i] += sums[i];
  }
  if (call.sums != nullptr)
    for (int i = 0; i < count; ++i) call.sums[column + i] += total[i];
}

FOR_EVERY_CPU void square_fp32(const Squares<float>& call, int64_t column) {
  call.outputs == nullptr ? square_columns<float, false>(call, column) : square_columns<float, true>(call, column);
}
FOR_EVERY_CPU void square_bf16(const Squares<uint16_t>& call, int64_t column) {
  call.outputs == nullptr ? square_columns<uint16_t, false>(call, column) : square_columns<uint16_t, true>(call, column);
}

at::Tensor square_gradient(
    const at::Tensor& gradient, const std::optional<at::Tensor>& outputs, std::optional<at::Tensor> sums) {
  TORCH_CHECK(gradient.dim() == 2, "gradient must be [c, n]");
  TORCH_CHECK(gradient.scalar_type() == at::kFloat || gradient.scalar_type() == at::kBFloat16, "gradient: fp32 or bf16");
  TORCH_CHECK(!outputs || (outputs->sizes() == gradient.sizes() && outputs->scalar_type() == gradient.scalar_type()),
              "outputs must be like gradient");
  if (sums) check_flat(*sums, gradient.size(1), "sums");
  const at::Tensor whole_gradient = gradient.contiguous();
  const at::Tensor whole_outputs = outputs ? outputs->contiguous() : at::Tensor();
  at::Tensor squares = at::empty(gradient.sizes(), gradient.options());
  const auto run = [&]<typename T>(void (*square)(const Squares<T>&, int64_t)) {
    const Squares<T> call{static_cast<const T*>(whole_gradient.const_data_ptr()),
                          outputs ? static_cast<const T*>(whole_outputs.const_data_ptr()) : nullptr,
                          static_cast<T*>(squares.mutable_data_ptr()),
                          sums ? sums->mutable_data_ptr<float>() : nullptr,
                          gradient.size(0),
                          gradient.size(1)};
    at::parallel_for(0, (call.num_columns + COLUMNS - 1) / COLUMNS, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) square(call, task * COLUMNS);
    });
  };
  gradient.scalar_type() == at::kFloat ? run(square_fp32) : run(square_bf16);
  return squares;
}

}  // namespace

}  // namespace dlrm_dense

TORCH_LIBRARY_FRAGMENT(dlrm_dense, library) {
  library.def("square_gradient(Tensor gradient, Tensor? outputs, Tensor(a!)? sums) -> Tensor");
}

TORCH_LIBRARY_IMPL(dlrm_dense, CPU, library) { library.impl("square_gradient", dlrm_dense::square_gradient); }

// The interaction of DLRM: dot products of all pairs of feature vectors, after vectors that the top gets unchanged.
// Only the lower triangle is computed. A sample is worked on in the first-level cache; threads share the samples.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "lanes.h"

namespace dlrm_dense {

namespace {

constexpr int ROWS = 8;  // rows of a block of sums, which stays in registers
constexpr int64_t SAMPLES_A_TASK = 64;

template <int width>
INLINE int64_t padded(int64_t count) {
  constexpr int64_t step = std::max(width, ROWS);
  return (count + step - 1) / step * step;
}

struct Shape {
  bool has_bottom;
  int64_t num_features;  // F
  int64_t dim;           // D

  INLINE int64_t num_vectors() const { return num_features + has_bottom; }  // V
  INLINE int64_t num_direct() const { return (has_bottom ? 1 : num_features) * dim; }
  INLINE int64_t num_outputs() const { return num_direct() + num_vectors() * (num_vectors() - 1) / 2; }
};

INLINE int64_t row_start(int64_t row) { return row * (row - 1) / 2; }

template <int width, typename From, typename To>
INLINE void convert(const From* from, int64_t count, To* to) {
  int64_t done = 0;
  // Rows are short: a call of memcpy would cost more.
  if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float>)
    for (; done + width <= count; done += width) lanes<width>(to + done) = lanes<width>(from + done);
  for (; done < count; ++done) to[done] = static_cast<To>(static_cast<float>(from[done]));
}

// Writes the vectors of one sample [V, padded D], bottom first; padding is left as it is.
template <int width, typename T>
INLINE void gather(const Shape& shape, const T* bottom, const float* pooled, float* vectors) {
  const int64_t stride = padded<width>(shape.dim);
  if (shape.has_bottom) {
    convert<width>(bottom, shape.dim, vectors);
    vectors += stride;
  }
  for (int64_t feature = 0; feature < shape.num_features; ++feature)
    convert<width>(pooled + feature * shape.dim, shape.dim, vectors + feature * stride);
}

// from [width, stride] -> to [width, to_stride]
template <int width>
INLINE void transpose_block(const float* from, int64_t stride, float* to, int64_t to_stride) {
  Lanes<width> rows[width];
#pragma GCC unroll 16
  for (int row = 0; row < width; ++row) rows[row] = lanes<width>(from + row * stride);
  transpose<width>(rows);
#pragma GCC unroll 16
  for (int row = 0; row < width; ++row) lanes<width>(to + row * to_stride) = rows[row];
}

// products[r, :width] = sum_d rows[r, d] * columns[d, :width], for `count` rows.
template <int width, int count>
INLINE void dot_block(
    const float* rows, int64_t stride, const float* columns, int64_t dim, float* products, int64_t column_stride) {
  Lanes<width> sums[count] = {};
  for (int64_t d = 0; d < dim; ++d) {
    const Lanes<width> column = lanes<width>(columns + d * column_stride);
#pragma GCC unroll 8
    for (int r = 0; r < count; ++r) sums[r] += rows[r * stride + d] * column;
  }
#pragma GCC unroll 8
  for (int r = 0; r < count; ++r) lanes<width>(products + r * column_stride) = sums[r];
}

// gradient[r, :num_lanes * width] = sum_j products[r, j] * vectors[j, :], for `count` rows.
template <int width, int count, int num_lanes>
INLINE void mix_block(const float* products, int64_t product_stride, const float* vectors, int64_t num_vectors,
                      int64_t stride, float* gradient) {
  Lanes<width> sums[count][num_lanes] = {};
  for (int64_t j = 0; j < num_vectors; ++j) {
    Lanes<width> vector[num_lanes];
#pragma GCC unroll 4
    for (int k = 0; k < num_lanes; ++k) vector[k] = lanes<width>(vectors + j * stride + k * width);
#pragma GCC unroll 8
    for (int r = 0; r < count; ++r) {
      const float product = products[r * product_stride + j];
#pragma GCC unroll 4
      for (int k = 0; k < num_lanes; ++k) sums[r][k] += product * vector[k];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < count; ++r)
#pragma GCC unroll 4
    for (int k = 0; k < num_lanes; ++k) lanes<width>(gradient + r * stride + k * width) = sums[r][k];
}

// Buffers of one thread, for one sample after another. Rows and columns are padded; padding is zero, or is never read.
template <int width>
struct Scratch {
  explicit Scratch(const Shape& shape)
      : stride(padded<width>(shape.dim)),
        side(padded<width>(shape.num_vectors())),
        vectors(side * stride),
        transposed(stride * side),
        products(side * side),
        outputs(padded<width>(shape.num_outputs()) + side),
        gradient(side * stride) {}

  int64_t stride, side;
  std::vector<float> vectors, transposed, products, outputs, gradient;
};

template <int width, typename T>
INLINE void forward_sample(const Shape& shape, const T* bottom, const float* pooled, T* output, Scratch<width>& scratch) {
  const int64_t num_vectors = shape.num_vectors(), stride = scratch.stride, side = scratch.side;
  float* vectors = scratch.vectors.data();
  float* transposed = scratch.transposed.data();
  float* products = scratch.products.data();
  gather<width>(shape, bottom, pooled, vectors);
  for (int64_t row = 0; row < num_vectors; row += width)
    for (int64_t d = 0; d < stride; d += width)
      transpose_block<width>(vectors + row * stride + d, stride, transposed + d * side + row, side);
  for (int64_t row = 0; row < num_vectors; row += ROWS)
    for (int64_t column = 0; column < row + ROWS - 1; column += width)
      dot_block<width, ROWS>(vectors + row * stride, stride, transposed + column, shape.dim,
                      products + row * side + column, side);
  // Rows are written in whole lanes, in order: the next row overwrites what the last one wrote beyond its end.
  float* pairs = scratch.outputs.data();
  for (int64_t row = 1; row < num_vectors; ++row)
    for (int64_t column = 0; column < row; column += width)
      lanes<width>(pairs + row_start(row) + column) = lanes<width>(products + row * side + column);
  const int64_t num_direct = shape.num_direct();
  if (shape.has_bottom)
    std::copy_n(bottom, num_direct, output);
  else
    convert<width>(pooled, num_direct, output);
  convert<width>(pairs, shape.num_outputs() - num_direct, output + num_direct);
}

template <int width, typename T>
INLINE void backward_sample(const Shape& shape, const T* grad_output, const T* bottom, const float* pooled,
                            T* grad_bottom, float* grad_pooled, Scratch<width>& scratch) {
  const int64_t num_vectors = shape.num_vectors(), stride = scratch.stride, side = scratch.side, dim = shape.dim;
  float* vectors = scratch.vectors.data();
  float* products = scratch.products.data();
  float* gradient = scratch.gradient.data();
  float* outputs = scratch.outputs.data();
  gather<width>(shape, bottom, pooled, vectors);
  convert<width>(grad_output, shape.num_outputs(), outputs);
  // With P the gradient of the products, filled to both triangles, the gradient of the vectors is P V: row r of P holds
  // the weight of every vector in the gradient of vector r.
  const float* pairs = outputs + shape.num_direct();
  for (int64_t row = 0; row < num_vectors; ++row) {
    const float* of_row = pairs + row_start(row);
    for (int64_t column = 0; column < row; column += width)
      lanes<width>(products + row * side + column) = lanes<width>(of_row + column);
    products[row * side + row] = 0.0f;
    for (int64_t column = 0; column < row; ++column) products[column * side + row] = of_row[column];
  }
  // AVX-512 has twice as many registers, and so room for twice as many sums.
  constexpr int num_lanes = width == 16 ? 2 : 1;
  for (int64_t d = 0; d < stride; d += num_lanes * width)
    for (int64_t row = 0; row < num_vectors; row += ROWS) {
      const float* of_rows = products + row * side;
      float* to = gradient + row * stride + d;
      if (d + (num_lanes - 1) * width < stride)
        mix_block<width, ROWS, num_lanes>(of_rows, side, vectors + d, num_vectors, stride, to);
      else
        mix_block<width, ROWS, 1>(of_rows, side, vectors + d, num_vectors, stride, to);
    }
  if (shape.has_bottom) {
    for (int64_t d = 0; d < dim; ++d) grad_bottom[d] = static_cast<T>(gradient[d] + outputs[d]);
    gradient += stride;
  }
  for (int64_t feature = 0; feature < shape.num_features; ++feature) {
    const float* from = gradient + feature * stride;
    float* to = grad_pooled + feature * dim;
    if (shape.has_bottom)
      convert<width>(from, dim, to);
    else
      for (int64_t d = 0; d < dim; ++d) to[d] = from[d] + outputs[feature * dim + d];
  }
}

// Tensors of one call, of dtype T but for the pooled embeddings, which are fp32.
template <typename T>
struct Call {
  Shape shape;
  const T* bottom;
  const float* pooled;
  T* output;
  const T* grad_output;
  T* grad_bottom;
  float* grad_pooled;
};

template <int width, typename T>
INLINE void forward_samples(const Call<T>& call, int64_t begin, int64_t end) {
  const Shape& shape = call.shape;
  Scratch<width> scratch(shape);
  for (int64_t i = begin; i < end; ++i)
    forward_sample<width>(shape, call.bottom + i * shape.dim, call.pooled + i * shape.num_features * shape.dim,
                   call.output + i * shape.num_outputs(), scratch);
}

template <int width, typename T>
INLINE void backward_samples(const Call<T>& call, int64_t begin, int64_t end) {
  const Shape& shape = call.shape;
  Scratch<width> scratch(shape);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i * shape.num_features * shape.dim;
    backward_sample<width>(shape, call.grad_output + i * shape.num_outputs(), call.bottom + i * shape.dim, call.pooled + first,
                    call.grad_bottom + i * shape.dim, call.grad_pooled + first, scratch);
  }
}

Shape checked_shape(const at::Tensor& bottom, const at::Tensor& pooled) {
  TORCH_CHECK(pooled.dim() == 3 && pooled.scalar_type() == at::kFloat, "pooled must be fp32 [c, F, D]");
  TORCH_CHECK(bottom.dim() == 2 && bottom.size(0) == pooled.size(0), "bottom must be [c, D] or [c, 0]");
  const int64_t dim = pooled.size(2);
  TORCH_CHECK(bottom.size(1) == dim || bottom.size(1) == 0, "bottom must have the ", dim, " columns of pooled, or none");
  TORCH_CHECK(bottom.scalar_type() == at::kFloat || bottom.scalar_type() == at::kBFloat16, "bottom: fp32 or bf16");
  return Shape{bottom.size(1) > 0, pooled.size(1), dim};
}

at::Tensor interact(const at::Tensor& bottom, const at::Tensor& pooled) {
  const Shape shape = checked_shape(bottom, pooled);
  const at::Tensor whole_bottom = bottom.contiguous(), whole_pooled = pooled.contiguous();
  at::Tensor output = at::empty({pooled.size(0), shape.num_outputs()}, bottom.options());
  const auto run = [&]<typename T>(T*) {
    const Call<T> call{shape, whole_bottom.const_data_ptr<T>(), whole_pooled.const_data_ptr<float>(),
                       output.mutable_data_ptr<T>(), nullptr, nullptr, nullptr};
    at::parallel_for(0, pooled.size(0), SAMPLES_A_TASK,
                     [&](int64_t begin, int64_t end) {
                       with_lanes([&]<int width>() INLINE_LAMBDA { forward_samples<width>(call, begin, end); });
                     });
  };
  bottom.scalar_type() == at::kFloat ? run(static_cast<float*>(nullptr)) : run(static_cast<c10::BFloat16*>(nullptr));
  return output;
}

std::tuple<at::Tensor, at::Tensor> interact_backward(
    const at::Tensor& grad_output, const at::Tensor& bottom, const at::Tensor& pooled) {
  const Shape shape = checked_shape(bottom, pooled);
  TORCH_CHECK(grad_output.dim() == 2 && grad_output.size(0) == pooled.size(0) &&
                  grad_output.size(1) == shape.num_outputs() && grad_output.scalar_type() == bottom.scalar_type(),
              "grad_output must be what interact returns: [c, ", shape.num_outputs(), "], of bottom's numbers");
  const at::Tensor whole_grad = grad_output.contiguous();
  const at::Tensor whole_bottom = bottom.contiguous(), whole_pooled = pooled.contiguous();
  at::Tensor grad_bottom = at::empty(bottom.sizes(), bottom.options());
  at::Tensor grad_pooled = at::empty(pooled.sizes(), pooled.options());
  const auto run = [&]<typename T>(T*) {
    const Call<T> call{shape, whole_bottom.const_data_ptr<T>(), whole_pooled.const_data_ptr<float>(), nullptr,
                       whole_grad.const_data_ptr<T>(), grad_bottom.mutable_data_ptr<T>(),
                       grad_pooled.mutable_data_ptr<float>()};
    at::parallel_for(0, pooled.size(0), SAMPLES_A_TASK,
                     [&](int64_t begin, int64_t end) {
                       with_lanes([&]<int width>() INLINE_LAMBDA { backward_samples<width>(call, begin, end); });
                     });
  };
  bottom.scalar_type() == at::kFloat ? run(static_cast<float*>(nullptr)) : run(static_cast<c10::BFloat16*>(nullptr));
  return {grad_bottom, grad_pooled};
}

}  // namespace

}  // namespace dlrm_dense

TORCH_LIBRARY_FRAGMENT(dlrm_dense, library) {
  library.def("interact(Tensor bottom, Tensor pooled) -> Tensor");
  library.def("interact_backward(Tensor grad_output, Tensor bottom, Tensor pooled) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(dlrm_dense, CPU, library) {
  library.impl("interact", dlrm_dense::interact);
  library.impl("interact_backward", dlrm_dense::interact_backward);
}

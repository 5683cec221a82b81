// Dot products of all pairs of feature vectors, and nothing that is thrown away: the lower triangle alone, beside what
// the top of a DLRM gets as it is. A sample is worked on in the first-level cache; samples share the threads.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && __GNUC__ >= 12
// One body for every generation of processors; the loader picks the one for this machine.
#define FOR_EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EVERY_CPU
#endif
// Into each of the bodies: what stays a function of its own is built for the oldest processor alone.
#define INLINE __attribute__((always_inline)) inline

namespace {

constexpr int LANES = 16;
constexpr int ROWS = 8;  // of a block of sums: they stay in registers
constexpr int64_t SAMPLES_A_TASK = 64;

using Lanes = float __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

INLINE Lanes& lanes(float* place) { return *reinterpret_cast<Lanes*>(place); }
INLINE const Lanes& lanes(const float* place) { return *reinterpret_cast<const Lanes*>(place); }

INLINE int64_t padded(int64_t count) { return (count + LANES - 1) / LANES * LANES; }

struct Shape {
  bool has_bottom;
  int64_t num_features;  // F
  int64_t dim;           // D

  INLINE int64_t num_vectors() const { return num_features + has_bottom; }  // V
  INLINE int64_t num_beside() const { return (has_bottom ? 1 : num_features) * dim; }
  INLINE int64_t num_outputs() const { return num_beside() + num_vectors() * (num_vectors() - 1) / 2; }
};

INLINE int64_t row_start(int64_t row) { return row * (row - 1) / 2; }

template <typename From, typename To>
INLINE void convert(const From* from, int64_t count, To* to) {
  for (int64_t k = 0; k < count; ++k) to[k] = static_cast<To>(static_cast<float>(from[k]));
}

// A call of memcpy costs more than rows as short as these.
template <>
INLINE void convert(const float* from, int64_t count, float* to) {
  const int64_t whole = count / LANES * LANES;
  for (int64_t k = 0; k < whole; k += LANES) lanes(to + k) = lanes(from + k);
  for (int64_t k = whole; k < count; ++k) to[k] = from[k];
}

// [V, padded D] of one sample, bottom first; what pads stays as it is.
template <typename T>
INLINE void gather(const Shape& shape, const T* bottom, const float* pooled, float* vectors) {
  const int64_t stride = padded(shape.dim);
  if (shape.has_bottom) {
    convert(bottom, shape.dim, vectors);
    vectors += stride;
  }
  for (int64_t feature = 0; feature < shape.num_features; ++feature)
    convert(pooled + feature * shape.dim, shape.dim, vectors + feature * stride);
}

// One exchange of a transposition: the odd groups of `width` lanes of `a` against the even ones of `b`.
template <int width, int... lane>
INLINE void exchange(Lanes& a, Lanes& b, std::integer_sequence<int, lane...>) {
  const Lanes first = __builtin_shufflevector(a, b, (lane & width ? LANES + lane - width : lane)...);
  b = __builtin_shufflevector(a, b, (lane & width ? LANES + lane : lane + width)...);
  a = first;
}

template <int width>
INLINE void exchange_all(Lanes* rows) {
#pragma GCC unroll 16
  for (int row = 0; row < LANES; ++row)
    if (!(row & width)) exchange<width>(rows[row], rows[row + width], std::make_integer_sequence<int, LANES>());
}

// from [16, stride] -> to [16, to_stride]
INLINE void transpose_block(const float* from, int64_t stride, float* to, int64_t to_stride) {
  Lanes rows[LANES];
#pragma GCC unroll 16
  for (int row = 0; row < LANES; ++row) rows[row] = lanes(from + row * stride);
  exchange_all<1>(rows);
  exchange_all<2>(rows);
  exchange_all<4>(rows);
  exchange_all<8>(rows);
#pragma GCC unroll 16
  for (int row = 0; row < LANES; ++row) lanes(to + row * to_stride) = rows[row];
}

// products[r, :16] = sum_d rows[r, d] * columns[d, :16], for `count` rows.
template <int count>
INLINE void dot_block(
    const float* rows, int64_t stride, const float* columns, int64_t dim, float* products, int64_t column_stride) {
  Lanes sums[count] = {};
  for (int64_t d = 0; d < dim; ++d) {
    const Lanes column = lanes(columns + d * column_stride);
#pragma GCC unroll 8
    for (int r = 0; r < count; ++r) sums[r] += rows[r * stride + d] * column;
  }
#pragma GCC unroll 8
  for (int r = 0; r < count; ++r) lanes(products + r * column_stride) = sums[r];
}

// gradient[r, :64 or less] = sum_j products[r, j] * vectors[j, :], for `count` rows.
template <int count, int width>
INLINE void mix_block(const float* products, int64_t product_stride, const float* vectors, int64_t num_vectors,
                      int64_t stride, float* gradient) {
  Lanes sums[count][width] = {};
  for (int64_t j = 0; j < num_vectors; ++j) {
    Lanes vector[width];
#pragma GCC unroll 4
    for (int k = 0; k < width; ++k) vector[k] = lanes(vectors + j * stride + k * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < count; ++r) {
      const float product = products[r * product_stride + j];
#pragma GCC unroll 4
      for (int k = 0; k < width; ++k) sums[r][k] += product * vector[k];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < count; ++r)
#pragma GCC unroll 4
    for (int k = 0; k < width; ++k) lanes(gradient + r * stride + k * LANES) = sums[r][k];
}

// Room of one thread, for one sample after another. Rows and columns are padded: what pads is zero, or is never read.
struct Scratch {
  explicit Scratch(const Shape& shape)
      : stride(padded(shape.dim)),
        side(padded(shape.num_vectors())),
        vectors(side * stride),
        transposed(stride * side),
        products(side * side),
        outputs(padded(shape.num_outputs()) + side),
        gradient(side * stride) {}

  int64_t stride, side;
  std::vector<float> vectors, transposed, products, outputs, gradient;
};

template <typename T>
INLINE void forward_sample(const Shape& shape, const T* bottom, const float* pooled, T* output, Scratch& scratch) {
  const int64_t num_vectors = shape.num_vectors(), stride = scratch.stride, side = scratch.side;
  float* vectors = scratch.vectors.data();
  float* transposed = scratch.transposed.data();
  float* products = scratch.products.data();
  gather(shape, bottom, pooled, vectors);
  for (int64_t row = 0; row < num_vectors; row += LANES)
    for (int64_t d = 0; d < stride; d += LANES)
      transpose_block(vectors + row * stride + d, stride, transposed + d * side + row, side);
  for (int64_t row = 0; row < num_vectors; row += ROWS)
    for (int64_t column = 0; column < row + ROWS - 1; column += LANES)
      dot_block<ROWS>(vectors + row * stride, stride, transposed + column, shape.dim,
                      products + row * side + column, side);
  // Whole lanes, in order of the rows: what one writes too much the next one covers.
  float* pairs = scratch.outputs.data();
  for (int64_t row = 1; row < num_vectors; ++row)
    for (int64_t column = 0; column < row; column += LANES)
      lanes(pairs + row_start(row) + column) = lanes(products + row * side + column);
  const int64_t num_beside = shape.num_beside();
  if (shape.has_bottom)
    std::copy_n(bottom, num_beside, output);
  else
    convert(pooled, num_beside, output);
  convert(pairs, shape.num_outputs() - num_beside, output + num_beside);
}

template <typename T>
INLINE void backward_sample(const Shape& shape, const T* grad_output, const T* bottom, const float* pooled,
                            T* grad_bottom, float* grad_pooled, Scratch& scratch) {
  const int64_t num_vectors = shape.num_vectors(), stride = scratch.stride, side = scratch.side, dim = shape.dim;
  float* vectors = scratch.vectors.data();
  float* products = scratch.products.data();
  float* gradient = scratch.gradient.data();
  float* outputs = scratch.outputs.data();
  gather(shape, bottom, pooled, vectors);
  convert(grad_output, shape.num_outputs(), outputs);
  // Both triangles: row r of the products' gradient then holds what every vector brings to vector r.
  const float* pairs = outputs + shape.num_beside();
  for (int64_t row = 0; row < num_vectors; ++row) {
    const float* of_row = pairs + row_start(row);
    for (int64_t column = 0; column < row; column += LANES)
      lanes(products + row * side + column) = lanes(of_row + column);
    products[row * side + row] = 0.0f;
    for (int64_t column = 0; column < row; ++column) products[column * side + row] = of_row[column];
  }
  for (int64_t d = 0; d < stride; d += 2 * LANES)
    for (int64_t row = 0; row < num_vectors; row += ROWS) {
      const float* of_rows = products + row * side;
      float* to = gradient + row * stride + d;
      if (d + LANES < stride)
        mix_block<ROWS, 2>(of_rows, side, vectors + d, num_vectors, stride, to);
      else
        mix_block<ROWS, 1>(of_rows, side, vectors + d, num_vectors, stride, to);
    }
  if (shape.has_bottom) {
    for (int64_t d = 0; d < dim; ++d) grad_bottom[d] = static_cast<T>(gradient[d] + outputs[d]);
    gradient += stride;
  }
  for (int64_t feature = 0; feature < shape.num_features; ++feature) {
    const float* from = gradient + feature * stride;
    float* to = grad_pooled + feature * dim;
    if (shape.has_bottom)
      convert(from, dim, to);
    else
      for (int64_t d = 0; d < dim; ++d) to[d] = from[d] + outputs[feature * dim + d];
  }
}

// The tensors of one call, whose numbers are T but for the pooled embeddings.
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

template <typename T>
INLINE void forward_samples(const Call<T>& call, int64_t begin, int64_t end) {
  const Shape& shape = call.shape;
  Scratch scratch(shape);
  for (int64_t i = begin; i < end; ++i)
    forward_sample(shape, call.bottom + i * shape.dim, call.pooled + i * shape.num_features * shape.dim,
                   call.output + i * shape.num_outputs(), scratch);
}

template <typename T>
INLINE void backward_samples(const Call<T>& call, int64_t begin, int64_t end) {
  const Shape& shape = call.shape;
  Scratch scratch(shape);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i * shape.num_features * shape.dim;
    backward_sample(shape, call.grad_output + i * shape.num_outputs(), call.bottom + i * shape.dim, call.pooled + first,
                    call.grad_bottom + i * shape.dim, call.grad_pooled + first, scratch);
  }
}

FOR_EVERY_CPU void forward_range(const Call<float>& call, int64_t begin, int64_t end) {
  forward_samples(call, begin, end);
}
FOR_EVERY_CPU void forward_range(const Call<c10::BFloat16>& call, int64_t begin, int64_t end) {
  forward_samples(call, begin, end);
}
FOR_EVERY_CPU void backward_range(const Call<float>& call, int64_t begin, int64_t end) {
  backward_samples(call, begin, end);
}
FOR_EVERY_CPU void backward_range(const Call<c10::BFloat16>& call, int64_t begin, int64_t end) {
  backward_samples(call, begin, end);
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
                     [&](int64_t begin, int64_t end) { forward_range(call, begin, end); });
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
                     [&](int64_t begin, int64_t end) { backward_range(call, begin, end); });
  };
  bottom.scalar_type() == at::kFloat ? run(static_cast<float*>(nullptr)) : run(static_cast<c10::BFloat16*>(nullptr));
  return {grad_bottom, grad_pooled};
}

}  // namespace

TORCH_LIBRARY(dlrm_dense, library) {
  library.def("interact(Tensor bottom, Tensor pooled) -> Tensor");
  library.def("interact_backward(Tensor grad_output, Tensor bottom, Tensor pooled) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(dlrm_dense, CPU, library) {
  library.impl("interact", interact);
  library.impl("interact_backward", interact_backward);
}

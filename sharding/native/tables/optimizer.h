// The update of one row, as FBGEMM defines it: EXACT_SGD, EXACT_ROWWISE_ADAGRAD, EXACT_ADAGRAD. With the gradient g of
// C columns, learning rate lr and state s:
//   sgd               w -= lr g
//   rowwise_adagrad   s += sum_c g_c^2 / C,   w -= lr g / (sqrt(s) + eps)
//   adagrad           s += g^2,               w -= lr g / (sqrt(s) + eps), element by element
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "every_cpu.h"

namespace dlrm_tables {

INLINE float sum_of_squares(const float* values, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += values[i] * values[i];
  return sum;
}

// Clips the gradient of a row before its update (CowClip, Zheng et al. 2022, arXiv 2204.06240, algorithm 1). With the
// row's weights w, and its occurrences in the batch:
//   g *= min(1, limit / ||g||),   limit = occurrences max(ratio ||w||, floor)
struct RowClip {
  float ratio = 0;
  float floor = -1;  // below 0: gradients are not clipped

  // weights, gradient: [C].
  INLINE void clip(const float* __restrict weights, float* __restrict gradient, int64_t num_columns,
                   int64_t occurrences) const {
    const float norm = std::sqrt(sum_of_squares(gradient, num_columns));
    const float weight_norm = std::sqrt(sum_of_squares(weights, num_columns));
    const float limit = static_cast<float>(occurrences) * std::max(ratio * weight_norm, floor);
    if (norm <= limit) return;
    const float factor = limit / norm;
    for (int64_t c = 0; c < num_columns; ++c) gradient[c] *= factor;
  }
};

enum class Method { sgd, rowwise_adagrad, adagrad };

struct Optimizer {
  Method method;
  float learning_rate;
  float eps;
  RowClip row_clip;
  float count_exponent = 0;  // a: the learning rate of a row is learning_rate occurrences^a

  INLINE float rate_of(int64_t occurrences) const {
    if (count_exponent == 0) return learning_rate;
    return learning_rate * std::pow(static_cast<float>(occurrences), count_exponent);
  }

  // Counts the numbers of state of a row.
  INLINE int64_t num_state(int64_t num_columns) const {
    return method == Method::sgd ? 0 : method == Method::rowwise_adagrad ? 1 : num_columns;
  }

  // weights, gradient: [C]. state: [num_state]. rate: of this row.
  INLINE void step(float* __restrict weights, float* __restrict state, const float* __restrict gradient,
                   int64_t num_columns, float rate) const {
    if (method == Method::adagrad) {
      for (int64_t c = 0; c < num_columns; ++c) {
        state[c] += gradient[c] * gradient[c];
        weights[c] -= rate * gradient[c] / (std::sqrt(state[c]) + eps);
      }
      return;
    }
    if (method == Method::rowwise_adagrad) {
      *state += sum_of_squares(gradient, num_columns) / static_cast<float>(num_columns);
      rate /= std::sqrt(*state) + eps;
    }
    for (int64_t c = 0; c < num_columns; ++c) weights[c] -= rate * gradient[c];
  }
};

}  // namespace dlrm_tables

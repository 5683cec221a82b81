// The update of one row, as FBGEMM defines it: EXACT_SGD, EXACT_ROWWISE_ADAGRAD, EXACT_ADAGRAD. With the gradient g of
// C columns, learning rate lr and state s:
//   sgd               w -= lr g
//   rowwise_adagrad   s += sum_c g_c^2 / C,   w -= lr g / (sqrt(s) + eps)
//   adagrad           s += g^2,               w -= lr g / (sqrt(s) + eps), element by element
#pragma once

#include <cmath>
#include <cstdint>

#include "every_cpu.h"

namespace dlrm_tables {

enum class Method { sgd, rowwise_adagrad, adagrad };

struct Optimizer {
  Method method;
  float learning_rate;
  float eps;

  // Counts the numbers of state of a row.
  INLINE int64_t num_state(int64_t num_columns) const {
    return method == Method::sgd ? 0 : method == Method::rowwise_adagrad ? 1 : num_columns;
  }

  // weights, gradient: [C]. state: [num_state].
  INLINE void step(float* __restrict weights, float* __restrict state, const float* __restrict gradient,
                   int64_t num_columns) const {
    if (method == Method::adagrad) {
      for (int64_t c = 0; c < num_columns; ++c) {
        state[c] += gradient[c] * gradient[c];
        weights[c] -= learning_rate * gradient[c] / (std::sqrt(state[c]) + eps);
      }
      return;
    }
    float rate = learning_rate;
    if (method == Method::rowwise_adagrad) {
      *state += sum_of_squares(gradient, num_columns) / static_cast<float>(num_columns);
      rate /= std::sqrt(*state) + eps;
    }
    for (int64_t c = 0; c < num_columns; ++c) weights[c] -= rate * gradient[c];
  }

 private:
  INLINE static float sum_of_squares(const float* values, int64_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) sum += values[i] * values[i];
    return sum;
  }
};

}  // namespace dlrm_tables

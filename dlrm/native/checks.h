// Checks of operators' arguments.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace dlrm_dense {

inline void check_flat(const at::Tensor& tensor, int64_t size, const char* name) {
  TORCH_CHECK(tensor.dim() == 1 && tensor.size(0) == size && tensor.scalar_type() == at::kFloat && tensor.is_contiguous(),
              name, " must be fp32 [", size, "], without gaps");
}

}  // namespace dlrm_dense

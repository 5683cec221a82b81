// Rows of a table: bodies for common lengths, and prefetching.
#pragma once

#include <cstdint>

#include "every_cpu.h"

namespace dlrm_tables {

constexpr int64_t BYTES_PER_LINE = 64;

// Calls `body.operator()<C>()` for the common lengths C, `body.operator()<0>()` for any other length.
template <typename Body>
INLINE void for_columns(int64_t num_columns, Body&& body) {
  switch (num_columns) {
    case 16: return body.template operator()<16>();
    case 32: return body.template operator()<32>();
    case 64: return body.template operator()<64>();
    case 128: return body.template operator()<128>();
    default: return body.template operator()<0>();
  }
}

enum class Intent { read = 0, write = 1 };

template <Intent intent, typename T>
INLINE void prefetch(const T* row, int64_t num_columns) {
  const char* const start = reinterpret_cast<const char*>(row);
  const int64_t num_bytes = num_columns * static_cast<int64_t>(sizeof(T));
  for (int64_t byte = 0; byte < num_bytes; byte += BYTES_PER_LINE) {
    __builtin_prefetch(start + byte, static_cast<int>(intent), 3);
  }
}

}  // namespace dlrm_tables

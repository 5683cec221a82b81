// Bags of ids, and the rows of a table that a shard holds.
#pragma once

#include <cstdint>

#include "every_cpu.h"

namespace dlrm_tables {

// Bags of one source: bag j holds ids[offsets[j]], ..., ids[offsets[j + 1] - 1].
struct Bags {
  const int64_t* ids;
  const int64_t* offsets;
  int64_t num_bags;
};

// Rows of a table that a shard holds.
struct RowRange {
  int64_t first_row;
  int64_t num_rows;

  // Row of an id within the shard; num_rows or more where another shard holds it.
  INLINE uint64_t row_of(int64_t id) const { return static_cast<uint64_t>(id) - static_cast<uint64_t>(first_row); }
  INLINE bool has(uint64_t row) const { return row < static_cast<uint64_t>(num_rows); }
};

}  // namespace dlrm_tables

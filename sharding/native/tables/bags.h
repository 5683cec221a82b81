// Bags of ids, and which of the ids a shard has.
#pragma once

#include <cstdint>

#include "every_cpu.h"

namespace dlrm_tables {

// Those of one source: bag j holds ids[offsets[j]], ..., ids[offsets[j + 1] - 1].
struct Bags {
  const int64_t* ids;
  const int64_t* offsets;
  int64_t num_bags;
};

// The rows of a table that a shard has.
struct RowRange {
  int64_t first_row;
  int64_t num_rows;

  // Of an id in the shard; num_rows or more where it is another shard's.
  INLINE uint64_t row_of(int64_t id) const { return static_cast<uint64_t>(id) - static_cast<uint64_t>(first_row); }
  INLINE bool has(uint64_t row) const { return row < static_cast<uint64_t>(num_rows); }
};

}  // namespace dlrm_tables

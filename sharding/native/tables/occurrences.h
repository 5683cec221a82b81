// Where the rows of a shard occur in bags.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bags.h"

namespace dlrm_tables {

// A row in a bag, as one number: the row of the shard in the upper half; source and bag in the lower.
using Occurrence = uint64_t;

INLINE uint32_t row_of(Occurrence occurrence) { return static_cast<uint32_t>(occurrence >> 32); }

struct Sources {
  std::vector<Bags> bags;
  // Of the lower half, that tell the bag; the others tell the source.
  int num_bag_bits = 0;

  INLINE uint32_t source_of(Occurrence occurrence) const {
    return static_cast<uint32_t>((occurrence & UINT32_MAX) >> num_bag_bits);
  }
  INLINE int64_t bag_of(Occurrence occurrence) const {
    return static_cast<int64_t>(occurrence & ((uint64_t{1} << num_bag_bits) - 1));
  }
};

// By row; those of a row by source, by bag, by place in the bag. In memory that the calling thread keeps: the next call
// from the same thread writes it anew.
std::span<const Occurrence> sorted_occurrences(const Sources& sources, RowRange range);

}  // namespace dlrm_tables

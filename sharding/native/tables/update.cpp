// One step of the rows that bags name: sorts their occurrences by row, sums the gradients of each row in float64, and
// updates the row once. A row that occurs very often is summed in blocks of a fixed length, which threads share:
// neither the result nor its accuracy depends on the number of threads.
#include "update.h"

#include <algorithm>
#include <mutex>

#include "half.h"
#include "int8_row.h"
#include "rows.h"
#include "for_each_task.h"

namespace dlrm_tables {

namespace {

constexpr int64_t AHEAD = 16;
constexpr int64_t OCCURRENCES_PER_TASK = 2048;
constexpr int64_t OCCURRENCES_PER_BLOCK = 1024;

// Occurrences [begin, end) of one row, or a block of them.
struct RowOccurrences {
  int64_t begin;
  int64_t end;
};

// Buffers for one row: the sum of its gradients in float64, and scaled in fp32; its weights if they are int8.
struct Buffers {
  std::vector<double> sum;
  std::vector<float> gradient;
  std::vector<float> weights;

  explicit Buffers(int64_t num_columns) : sum(num_columns), gradient(num_columns), weights(num_columns) {}
};

struct Work {
  const Update& update;
  std::span<const Occurrence> occurrences;

  INLINE int64_t count() const { return static_cast<int64_t>(occurrences.size()); }
};

template <int C, typename T>
struct Rows {
  const Work& work;
  const Update& update;
  const int64_t num_columns;

  INLINE explicit Rows(const Work& of) : work(of), update(of.update), num_columns(C ? C : of.update.num_columns) {}

  INLINE const T* gradient(int64_t i) const {
    const Occurrence occurrence = work.occurrences[i];
    const GradientRows& of_source = update.gradients[update.sources.source_of(occurrence)];
    return static_cast<const T*>(of_source.rows) + update.sources.bag_of(occurrence) * of_source.stride;
  }

  INLINE void prefetch_row(int64_t i) const {
    if (i >= work.count()) return;
    prefetch<Intent::read>(gradient(i), num_columns);
    const int64_t row = row_of(work.occurrences[i]);
    if (update.int8_weights == nullptr) {
      prefetch<Intent::write>(update.weights + row * num_columns, num_columns);
    } else {
      prefetch<Intent::write>(int8_row(row), num_columns + GRID_BYTES);
    }
    const int64_t num_state = update.optimizer.num_state(num_columns);
    prefetch<Intent::write>(update.state + row * num_state, num_state);
  }

  // Sums the gradients of one row, or of a block of its occurrences.
  INLINE void sum(RowOccurrences span, double* __restrict sum) const {
    const T* __restrict first = gradient(span.begin);
    for (int64_t c = 0; c < num_columns; ++c) sum[c] = to_float(first[c]);
    for (int64_t i = span.begin + 1; i < span.end; ++i) {
      prefetch_row(i + AHEAD);
      const T* __restrict row = gradient(i);
      for (int64_t c = 0; c < num_columns; ++c) sum[c] += to_float(row[c]);
    }
  }

  INLINE uint8_t* int8_row(int64_t row) const { return update.int8_weights + row * (num_columns + GRID_BYTES); }

  // Updates a row by the sum of the gradients of its occurrences, which is overwritten where it is clipped.
  INLINE void update_row(int64_t row, int64_t occurrences, Buffers& buffers) const {
    float* const gradient = buffers.gradient.data();
    if (update.int8_weights == nullptr) {
      step_row(update.weights + row * num_columns, row, occurrences, gradient);
      return;
    }
    float* const weights = buffers.weights.data();
    decode_row(int8_row(row), weights, num_columns);
    step_row(weights, row, occurrences, gradient);
    encode_row(weights, int8_row(row), num_columns, RowRandom(update.rounding_key, row));
  }

  INLINE void step_row(float* weights, int64_t row, int64_t occurrences, float* gradient) const {
    const Optimizer& optimizer = update.optimizer;
    if (optimizer.row_clip.floor >= 0) optimizer.row_clip.clip(weights, gradient, num_columns, occurrences);
    float* const state = update.state + row * optimizer.num_state(num_columns);
    optimizer.step(weights, state, gradient, num_columns, optimizer.rate_of(occurrences));
  }

  template <typename From>
  INLINE void scale(const From* __restrict from, float* __restrict to) const {
    const float multiplier = update.gradient_multiplier;
    for (int64_t c = 0; c < num_columns; ++c) to[c] = static_cast<float>(to_float(from[c])) * multiplier;
  }

  // Updates the rows whose first occurrence is in [begin, end). Those too long for one thread go to `long_rows`.
  INLINE void update_rows(int64_t begin, int64_t end, std::vector<RowOccurrences>& long_rows) const {
    Buffers buffers(num_columns);
    float* const scaled = buffers.gradient.data();
    const std::span<const Occurrence> occurrences = work.occurrences;
    // A row whose first occurrence is before `begin` belongs to the task of that occurrence.
    while (begin < end && begin > 0 && row_of(occurrences[begin]) == row_of(occurrences[begin - 1])) ++begin;
    for (int64_t i = begin; i < std::min(begin + AHEAD, end); ++i) prefetch_row(i);
    while (begin < end) {
      const uint32_t row = row_of(occurrences[begin]);
      const RowOccurrences span{begin, find_end_of_row(begin)};
      begin = span.end;
      if (span.end - span.begin > OCCURRENCES_PER_BLOCK) {
        long_rows.push_back(span);
        continue;
      }
      prefetch_row(span.begin + AHEAD);
      if (span.end - span.begin == 1) {
        scale(gradient(span.begin), scaled);
      } else {
        sum(span, buffers.sum.data());
        scale(buffers.sum.data(), scaled);
      }
      update_row(row, span.end - span.begin, buffers);
    }
  }

  // Finds the end of a row's occurrences: of many by bisection, of few one by one.
  INLINE int64_t find_end_of_row(int64_t begin) const {
    const Occurrence* const all = work.occurrences.data();
    const uint32_t row = row_of(all[begin]);
    const int64_t count = work.count();
    const int64_t probe = begin + OCCURRENCES_PER_BLOCK;
    if (probe < count && row_of(all[probe]) == row) {
      return std::partition_point(all + probe, all + count, [=](Occurrence o) { return row_of(o) == row; }) - all;
    }
    int64_t end = begin + 1;
    while (end < count && row_of(all[end]) == row) ++end;
    return end;
  }
};

template <typename Body>
INLINE void for_rows(const Work& work, Body&& body) {
  for_columns(work.update.num_columns, [&]<int C>() INLINE_LAMBDA {
    switch (work.update.gradient_format) {
      case NumberFormat::fp32: return body(Rows<C, float>(work));
      case NumberFormat::fp16: return body(Rows<C, Half>(work));
      case NumberFormat::bf16: return body(Rows<C, BFloat16>(work));
    }
  });
}

}  // namespace

FOR_EVERY_CPU void update_rows(const Work& work, int64_t begin, int64_t end, std::vector<RowOccurrences>& long_rows) {
  for_rows(work, [&](const auto& rows) INLINE_LAMBDA { rows.update_rows(begin, end, long_rows); });
}

FOR_EVERY_CPU void sum_block(const Work& work, RowOccurrences block, double* sum) {
  for_rows(work, [&](const auto& rows) INLINE_LAMBDA { rows.sum(block, sum); });
}

// Adds up the blocks of a row's occurrences and updates the row. sums: [blocks, C]
FOR_EVERY_CPU void update_long_row(const Work& work, RowOccurrences span, double* sums) {
  const int64_t num_columns = work.update.num_columns;
  const int64_t num_blocks = (span.end - span.begin + OCCURRENCES_PER_BLOCK - 1) / OCCURRENCES_PER_BLOCK;
  for (int64_t block = 1; block < num_blocks; ++block) {
    for (int64_t c = 0; c < num_columns; ++c) sums[c] += sums[block * num_columns + c];
  }
  Buffers buffers(num_columns);
  const Rows<0, float> rows(work);
  rows.scale(sums, buffers.gradient.data());
  rows.update_row(row_of(work.occurrences[span.begin]), span.end - span.begin, buffers);
}

namespace {

void update_long_rows(const Work& work, const std::vector<RowOccurrences>& long_rows) {
  const int64_t num_columns = work.update.num_columns;
  std::vector<RowOccurrences> blocks;
  std::vector<int64_t> first_blocks;
  for (const RowOccurrences& span : long_rows) {
    first_blocks.push_back(static_cast<int64_t>(blocks.size()));
    for (int64_t begin = span.begin; begin < span.end; begin += OCCURRENCES_PER_BLOCK) {
      blocks.push_back({begin, std::min(begin + OCCURRENCES_PER_BLOCK, span.end)});
    }
  }
  std::vector<double> sums(blocks.size() * num_columns);
  for_each_task(static_cast<int64_t>(blocks.size()),
                [&](int64_t block) { sum_block(work, blocks[block], sums.data() + block * num_columns); });
  for_each_task(static_cast<int64_t>(long_rows.size()),
                [&](int64_t i) { update_long_row(work, long_rows[i], sums.data() + first_blocks[i] * num_columns); });
}

}  // namespace

void update(const Update& update) {
  const Work work{update, sort_occurrences(update.sources, update.range)};
  std::vector<RowOccurrences> long_rows;
  std::mutex mutex;
  for_each_task((work.count() + OCCURRENCES_PER_TASK - 1) / OCCURRENCES_PER_TASK, [&](int64_t task) {
    std::vector<RowOccurrences> found;
    update_rows(work, task * OCCURRENCES_PER_TASK, std::min((task + 1) * OCCURRENCES_PER_TASK, work.count()), found);
    if (found.empty()) return;
    const std::lock_guard guard(mutex);
    long_rows.insert(long_rows.end(), found.begin(), found.end());
  });
  update_long_rows(work, long_rows);
}

}  // namespace dlrm_tables

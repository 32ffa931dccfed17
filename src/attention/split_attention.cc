#include "attention/split_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/align.h"

namespace varve {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

// Floats between rows of scores: rows exactly 4 KiB apart would compete for the same cache lines.
constexpr size_t kRowPadding = 16;

constexpr size_t Align64(size_t bytes) { return AlignUp(bytes, 64); }

StripShape KeyShape(const QueryRows& rows, int head) {
  return {rows.layer, head, rows.shape->key_dim, rows.shape->page_tokens};
}

StripShape ValueShape(const QueryRows& rows, int head) {
  return {rows.layer, head, rows.shape->value_dim, rows.shape->page_tokens};
}

bool Touched(const Partial& partial, int space) { return *partial.touched >> space & 1; }

// --- visibility ---

bool PageVisible(const QueryRows& rows, const TableEntry& entry) {
  if (rows.options->causal && entry.page->RowPosition(0) > rows.last_position()) return false;
  const int64_t window = rows.options->window;
  return window <= 0 || entry.page->RowPosition(entry.rows - 1) > rows.first_position - window;
}

bool PageFullyVisible(const QueryRows& rows, const TableEntry& entry) {
  if (!entry.live.IsPrefix(entry.rows)) return false;
  if (rows.options->causal && entry.page->RowPosition(entry.rows - 1) > rows.first_position)
    return false;
  const int64_t window = rows.options->window;
  return window <= 0 || entry.page->RowPosition(0) > rows.last_position() - window;
}

bool RowVisible(const QueryRows& rows, const TableEntry& entry, int query, int row) {
  if (!entry.live.Get(row)) return false;
  const int64_t position = entry.page->RowPosition(row);
  const int64_t query_position = rows.first_position + query;
  if (rows.options->causal && position > query_position) return false;
  return rows.options->window <= 0 || position > query_position - rows.options->window;
}

// --- passes ---

// Soft cap and masks on the scores of one page; columns without a row become -inf.
void FinishScores(const QueryRows& rows, const TableEntry& entry, float* scores, size_t stride) {
  const bool all_visible = PageFullyVisible(rows, entry);
  const float cap = rows.options->soft_cap;
  for (int row = 0; row < rows.rows(); ++row) {
    float* row_scores = scores + row * stride;
    for (int t = 0; cap > 0.0f && t < entry.rows; ++t)
      row_scores[t] = cap * std::tanh(row_scores[t] / cap);
    for (int t = 0; !all_visible && t < entry.rows; ++t) {
      if (!RowVisible(rows, entry, row / rows.shape->group_size, t)) row_scores[t] = kMinusInf;
    }
    std::fill(row_scores + entry.rows, row_scores + rows.shape->page_tokens, kMinusInf);
  }
}

// How far reading ahead may run: far enough to bridge a pass that needs little memory, not so far
// that lines leave the second-level cache before they are used.
constexpr size_t kMaxStripsAhead = 2 * kSplitPages;
// Below this many it catches up. One strip of 2 to 4 bits is less than what is on its way from
// memory at a time.
constexpr size_t kMinStripsAhead = 2;

// Called before strip number strips_read of the task is used.
void SetRate(ReadAhead& ahead, size_t strips_read) {
  const size_t entered = ahead.entered();
  ahead.cursor.rate = entered <= strips_read + kMinStripsAhead  ? 2
                      : entered < strips_read + kMaxStripsAhead ? 1
                                                                : 0;
}

// Weighted values of a page in which some rows are hidden from some queries and may hold NaN: each
// query sums over the runs of rows that it sees.
void AddVisibleRuns(const QueryRows& rows, const TableEntry& entry, int head,
                    const std::byte* strip, const float* weights, size_t stride,
                    const float* weight_sum, float* accumulators) {
  const Rung& rung = entry.page->rung(Part::kValue);
  const StripShape shape = ValueShape(rows, head);
  const int group = rows.shape->group_size;
  const size_t floats = rung.AccumulatorFloats(shape);
  for (int query = 0; query < rows.num_queries; ++query) {
    const size_t first_row = static_cast<size_t>(query) * group;
    for (int row = 0; row < entry.rows;) {
      if (!RowVisible(rows, entry, query, row)) {
        ++row;
        continue;
      }
      int end = row + 1;
      while (end < entry.rows && RowVisible(rows, entry, query, end)) ++end;
      const ValuePage run = {strip, row, end - row, weights + first_row * stride};
      rung.AddValuePages(shape, {&run, 1}, stride, weight_sum + first_row, group,
                         accumulators + first_row * floats, nullptr);
      row = end;
    }
  }
}

// Values of such pages are read side by side, a line of each at a time, once all scores are there:
// they are fetched together with the keys, which lie in front of them.
bool ReadTogether(const Page& page) {
  return page.HasRaw() && page.rung(Part::kValue).most_value_pages() > 1;
}

// What will be fetched for a strip: its bytes, or its packed bytes.
void AddRead(const Page& page, Part part, int head, ReadAhead& ahead) {
  if (ReadTogether(page)) {
    if (part == Part::kKey) {
      ahead.Add(page.Strip(part, head),
                page.part(Part::kKey).strip_bytes + page.part(Part::kValue).strip_bytes);
    }
    return;
  }
  if (page.HasRaw()) {
    ahead.Add(page.Strip(part, head), page.part(part).strip_bytes);
    return;
  }
  const std::span<const std::byte> packed = page.packed()->packed->Strip(StripIndex(part, head));
  ahead.Add(packed.data(), packed.size());
}

// What the passes over the pages of a split share.
struct SplitPass {
  const QueryRows& rows;
  int head;
  std::span<const TableEntry> entries;
  float* scores;  // [rows, stride]; weights after the softmax
  size_t stride;
  StripReader& reader;
  ReadAhead& ahead;
  size_t& strips_read;

  float* PageScores(size_t p) const {
    return scores + p * static_cast<size_t>(rows.shape->page_tokens);
  }
};

void ScorePages(const SplitPass& pass, const PreparedQueries& prepared) {
  const QueryRows& rows = pass.rows;
  for (size_t p = 0; p < pass.entries.size(); ++p) {
    const TableEntry& entry = pass.entries[p];
    float* scores = pass.PageScores(p);
    if (!PageVisible(rows, entry)) {
      for (int row = 0; row < rows.rows(); ++row)
        std::fill_n(scores + row * pass.stride, rows.shape->page_tokens, kMinusInf);
      continue;
    }
    SetRate(pass.ahead, pass.strips_read++);
    const Rung& rung = entry.page->rung(Part::kKey);
    rung.Scores(KeyShape(rows, pass.head), pass.reader.Get(*entry.page, Part::kKey, pass.head),
                prepared[rows.spaces->KeyIndex(rung)], rows.rows(), entry.rows, scores, pass.stride,
                &pass.ahead);
    if (rows.options->soft_cap > 0.0f || entry.rows < rows.shape->page_tokens ||
        !PageFullyVisible(rows, entry)) {
      FinishScores(rows, entry, scores, pass.stride);
    }
  }
}

// Pages of one rung in a row, whose values are added together.
class ValueRun {
 public:
  ValueRun(const SplitPass& pass, Partial& partial) : pass_(pass), partial_(partial) {}

  size_t size() const { return num_pages_; }
  // Before a page of `rung`: adds the others if it cannot go with them.
  void MakeRoomFor(const Rung& rung) {
    if (&rung != rung_ || num_pages_ == static_cast<size_t>(rung.most_value_pages())) Add();
    rung_ = &rung;
  }
  void Take(const ValuePage& page) { pages_[num_pages_++] = page; }
  void Add() {
    if (num_pages_ == 0) return;
    const auto space = static_cast<size_t>(pass_.rows.spaces->ValueIndex(*rung_));
    rung_->AddValuePages(ValueShape(pass_.rows, pass_.head), {pages_.data(), num_pages_},
                         pass_.stride, partial_.sum, pass_.rows.rows(),
                         partial_.accumulators[space], &pass_.ahead);
    num_pages_ = 0;
  }

 private:
  const SplitPass& pass_;
  Partial& partial_;
  std::array<ValuePage, kSplitPages> pages_;
  size_t num_pages_ = 0;
  const Rung* rung_ = nullptr;
};

void AddPageValues(const SplitPass& pass, Partial& partial) {
  const QueryRows& rows = pass.rows;
  const StripShape shape = ValueShape(rows, pass.head);
  *partial.touched = 0;
  ValueRun run(pass, partial);
  for (size_t p = 0; p < pass.entries.size(); ++p) {
    const TableEntry& entry = pass.entries[p];
    if (!PageVisible(rows, entry)) continue;
    const Rung& rung = entry.page->rung(Part::kValue);
    run.MakeRoomFor(rung);
    if (!ReadTogether(*entry.page)) SetRate(pass.ahead, pass.strips_read++);
    const int space = rows.spaces->ValueIndex(rung);
    float* accumulators = partial.accumulators[space];
    if (!Touched(partial, space)) {
      *partial.touched |= 1u << space;
      std::fill_n(accumulators, rows.rows() * rung.AccumulatorFloats(shape), 0.0f);
    }
    const float* weights = pass.PageScores(p);
    // Runs must not depend on what is packed: rungs may round the weights of a run together.
    const std::byte* strip = pass.reader.Get(*entry.page, Part::kValue, pass.head, run.size());
    if (!rung.values_always_finite() && !PageFullyVisible(rows, entry)) {
      AddVisibleRuns(rows, entry, pass.head, strip, weights, pass.stride, partial.sum,
                     accumulators);
      continue;
    }
    run.Take({strip, 0, entry.rows, weights});
  }
  run.Add();
}

}  // namespace

void LayerSpaces::Add(const Rung* key_rung, const Rung* value_rung) {
  const auto add = [](auto& rungs, size_t shared, size_t space, const Rung* rung) {
    size_t index = space < shared ? space : shared;
    while (space >= shared && rungs[index] != nullptr && rungs[index] != rung) ++index;
    rungs[index] = rung;
  };
  add(key, kNumSharedKeySpaces, static_cast<size_t>(key_rung->key_space()), key_rung);
  add(value, kNumSharedValueSpaces, static_cast<size_t>(value_rung->value_space()), value_rung);
}

size_t Partial::Bytes(const QueryRows& rows) {
  size_t bytes = 2 * Align64(rows.rows() * sizeof(float)) + 64;
  for (const Rung* rung : rows.spaces->value) {
    if (rung != nullptr)
      bytes += Align64(rows.rows() * rung->AccumulatorFloats(ValueShape(rows, 0)) * sizeof(float));
  }
  return bytes;
}

Partial Partial::At(const QueryRows& rows, std::byte* base) {
  Partial partial;
  const size_t row_bytes = Align64(rows.rows() * sizeof(float));
  partial.max = reinterpret_cast<float*>(base);
  partial.sum = reinterpret_cast<float*>(base + row_bytes);
  partial.touched = reinterpret_cast<uint32_t*>(base + 2 * row_bytes);
  base += 2 * row_bytes + 64;
  for (int space = 0; space < kMaxValueSpaces; ++space) {
    const Rung* rung = rows.spaces->value[space];
    if (rung == nullptr) continue;
    partial.accumulators[space] = reinterpret_cast<float*>(base);
    base += Align64(rows.rows() * rung->AccumulatorFloats(ValueShape(rows, 0)) * sizeof(float));
  }
  return partial;
}

void Partial::Reset(int num_rows) {
  std::fill_n(max, num_rows, kMinusInf);
  std::fill_n(sum, num_rows, 0.0f);
  *touched = 0;
}

size_t SplitScratchBytes(const QueryRows& rows) {
  const size_t row = static_cast<size_t>(kSplitPages) * rows.shape->page_tokens + kRowPadding;
  return Align64(rows.rows() * row * sizeof(float));
}

void AddReads(const QueryRows& rows, int head, int split, ReadAhead& ahead) {
  const std::span<const TableEntry> entries = rows.pages;
  const size_t begin = static_cast<size_t>(split) * kSplitPages;
  const size_t end = std::min(entries.size(), begin + kSplitPages);
  for (size_t p = begin; p < end; ++p) {
    const Page& page = *entries[p].page;
    if (PageVisible(rows, entries[p])) AddRead(page, Part::kKey, head, ahead);
  }
  for (size_t p = begin; p < end; ++p) {
    const Page& page = *entries[p].page;
    if (PageVisible(rows, entries[p])) AddRead(page, Part::kValue, head, ahead);
  }
}

void AttendSplit(const QueryRows& rows, int head, int split, const PreparedQueries& prepared,
                 std::byte* scratch, float* page_sums, StripReader& reader, ReadAhead& ahead,
                 size_t& strips_read, StageTimes* times, Partial& partial) {
  StageClock clock(times);
  const size_t begin = static_cast<size_t>(split) * kSplitPages;
  const auto entries =
      rows.pages.subspan(begin, std::min<size_t>(rows.pages.size() - begin, kSplitPages));
  const SplitPass pass = {
      .rows = rows,
      .head = head,
      .entries = entries,
      .scores = reinterpret_cast<float*>(scratch),
      .stride = entries.size() * static_cast<size_t>(rows.shape->page_tokens) + kRowPadding,
      .reader = reader,
      .ahead = ahead,
      .strips_read = strips_read};
  ScorePages(pass, prepared);
  clock.Lap(&StageTimes::scores_us);
  rows.kernels->softmax({pass.scores, rows.rows(), pass.stride, rows.shape->page_tokens,
                         static_cast<int>(entries.size()), partial.max, partial.sum, page_sums,
                         &ahead});
  clock.Lap(&StageTimes::softmax_us);
  AddPageValues(pass, partial);
  clock.Lap(&StageTimes::values_us);
}

namespace {

// Sums of the spaces that a part has touched begin at zero.
void TouchSpaces(const QueryRows& rows, Partial& total, std::span<const Partial> parts) {
  const StripShape shape = ValueShape(rows, 0);
  for (const Partial& part : parts) {
    for (int space = 0; space < kMaxValueSpaces; ++space) {
      if (!Touched(part, space) || Touched(total, space)) continue;
      *total.touched |= 1u << space;
      std::fill_n(total.accumulators[space],
                  rows.rows() * rows.spaces->value[space]->AccumulatorFloats(shape), 0.0f);
    }
  }
}

}  // namespace

void MergePartials(const QueryRows& rows, Partial& total, std::span<const Partial> parts) {
  TouchSpaces(rows, total, parts);
  std::array<MergeTerm, kMergedPartials> terms;
  for (int row = 0; row < rows.rows(); ++row) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const float max = parts[p].max[row];
      const float new_max = std::max(total.max[row], max);
      terms[p].keep = total.max[row] == new_max ? 1.0f : std::exp(total.max[row] - new_max);
      terms[p].add = max == new_max ? 1.0f : std::exp(max - new_max);
      total.max[row] = new_max;
      total.sum[row] = total.sum[row] * terms[p].keep + parts[p].sum[row] * terms[p].add;
    }
    for (int space = 0; space < kMaxValueSpaces; ++space) {
      if (!Touched(total, space)) continue;
      const size_t floats = rows.spaces->value[space]->AccumulatorFloats(ValueShape(rows, 0));
      for (size_t p = 0; p < parts.size(); ++p) {
        terms[p].from =
            Touched(parts[p], space) ? parts[p].accumulators[space] + row * floats : nullptr;
      }
      rows.kernels->merge_sums(total.accumulators[space] + row * floats, floats,
                               {terms.data(), parts.size()});
    }
  }
}

float FinishRow(const QueryRows& rows, int head, const Partial& total, int row, float* output) {
  const StripShape shape = ValueShape(rows, head);
  std::fill_n(output, shape.dim, 0.0f);
  for (int space = 0; space < kMaxValueSpaces; ++space) {
    if (!Touched(total, space)) continue;
    const Rung* rung = rows.spaces->value[space];
    rung->FinishValues(shape, total.accumulators[space] + row * rung->AccumulatorFloats(shape), 1,
                       output);
  }
  const float sum = total.sum[row];
  const float norm = sum == 0.0f ? 0.0f : 1.0f / sum;  // NaN stays NaN
  for (int d = 0; d < shape.dim; ++d) output[d] *= norm;
  return sum == 0.0f ? kMinusInf : total.max[row] + std::log(sum);
}

}  // namespace varve

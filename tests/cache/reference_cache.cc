#include "tests/cache/reference_cache.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>

namespace varve {
namespace {

// The age of pages at rest: none is greater.
constexpr int64_t kForEver = int64_t{1} << 60;

}  // namespace

int ReferencePage::num_live() const {
  return static_cast<int>(
      std::count_if(rows.begin(), rows.end(), [](const auto& row) { return row.live; }));
}

ReferenceCache::ReferenceCache(const CacheShape& shape, const Plan& plan,
                               std::shared_ptr<const Codebook> codebook,
                               std::shared_ptr<const Compressor> compressor)
    : shape_(shape),
      plan_(plan),
      codebook_(std::move(codebook)),
      compressor_(std::move(compressor)) {
  for (const std::string_view name : RungNames()) {
    const RungDescriptor* rung = FindRung(name);
    if (rung != nullptr) rungs_[rung->name] = rung->Make({&ActiveKernels(), nullptr});
  }
  if (codebook_ == nullptr) return;
  for (const CodebookTable& table : codebook_->tables) {
    const RungDescriptor& rung = PqDescriptorOf({table.num_subspaces, table.bits});
    rungs_[rung.name] = rung.Make({&ActiveKernels(), codebook_});
  }
}

// --- the plan ---

const LayerRule& ReferenceCache::RuleOf(int layer) const {
  for (const LayerRule& rule : plan_.rules) {
    if (rule.first_layer <= layer && (rule.last_layer == -1 || layer <= rule.last_layer))
      return rule;
  }
  return uncovered_;
}

const Rung* ReferenceCache::OpenRung(int layer) const {
  return RungOf(RuleOf(layer).open_rung.value_or("f16"), Part::kKey);
}

const Rung* ReferenceCache::RungOf(const std::string& name, Part part) const {
  const int dim = part == Part::kKey ? shape_.key_dim : shape_.value_dim;
  return rungs_.at(FindRung(name, dim)->name).get();
}

// With pq rungs the newest 128 tokens stay open, or half of a short window.
int64_t ReferenceCache::OpenTokens(int layer) const {
  const LayerRule& rule = RuleOf(layer);
  if (rule.open_tokens) return *rule.open_tokens;
  const auto [key_rung, value_rung] = RungsAt(layer, 0);
  if (!key_rung->descriptor().needs_codebook() && !value_rung->descriptor().needs_codebook())
    return 0;
  return std::min<int64_t>(128, rule.window_tokens.value_or(256) / 2);
}

// With a rung of less than 8 bits a value the first 64 tokens stay exact.
int64_t ReferenceCache::ExactTokens(int layer) const {
  const LayerRule& rule = RuleOf(layer);
  if (rule.exact_tokens) return *rule.exact_tokens;
  const auto is_short = [&](const std::string& name, Part part) {
    const int dim = part == Part::kKey ? shape_.key_dim : shape_.value_dim;
    const size_t bytes = RungOf(name, part)->StripBytes(part, {layer, 0, dim, shape_.page_tokens});
    return bytes < static_cast<size_t>(dim) * static_cast<size_t>(shape_.page_tokens);
  };
  bool any = false;
  for (const auto& name : {rule.k, rule.idle_k}) any = any || (name && is_short(*name, Part::kKey));
  for (const auto& name : {rule.v, rule.idle_v})
    any = any || (name && is_short(*name, Part::kValue));
  for (const AgeStep& step : rule.age) {
    any = any || (!rule.k && is_short(step.rung, Part::kKey)) ||
          (!rule.v && is_short(step.rung, Part::kValue));
  }
  return any ? 64 : 0;
}

ReferenceCache::RungPair ReferenceCache::RungsAt(int layer, int64_t age) const {
  const LayerRule& rule = RuleOf(layer);
  std::string by_age = "f16";
  for (const AgeStep& step : rule.age) {
    by_age = step.rung;
    if (step.until_tokens == -1 || age < step.until_tokens) break;
  }
  return {RungOf(rule.k.value_or(by_age), Part::kKey),
          RungOf(rule.v.value_or(by_age), Part::kValue)};
}

ReferenceCache::RungPair ReferenceCache::RungsAtRest(int layer) const {
  const LayerRule& rule = RuleOf(layer);
  const auto [key_rung, value_rung] = RungsAt(layer, kForEver);
  return {rule.idle_k ? RungOf(*rule.idle_k, Part::kKey) : key_rung,
          rule.idle_v ? RungOf(*rule.idle_v, Part::kValue) : value_rung};
}

// --- a page's life ---

// Only the last page may still grow: it does while it is open, has room and reaches up to the
// next position.
bool ReferenceCache::CanGrow(const Pages& pages, int64_t next_position) const {
  if (pages.empty()) return false;
  const ReferencePage& last = pages.back();
  return last.demoted_age < 0 && last.tokens_per_row == 1 &&
         static_cast<int>(last.rows.size()) < shape_.page_tokens &&
         last.end_position() == next_position;
}

bool ReferenceCache::Complete(const Pages& pages, size_t index) const {
  const ReferencePage& page = pages[index];
  return index + 1 < pages.size() || page.demoted_age >= 0 || page.tokens_per_row > 1 ||
         static_cast<int>(page.rows.size()) == shape_.page_tokens;
}

bool ReferenceCache::FallsOutOfWindow(int layer, const ReferencePage& page,
                                      int64_t next_position) const {
  const LayerRule& rule = RuleOf(layer);
  return rule.window_tokens && page.first_position >= rule.sink_tokens.value_or(0) &&
         next_position - page.end_position() >= *rule.window_tokens;
}

bool ReferenceCache::IsDueToDemote(int layer, const ReferencePage& page,
                                   int64_t next_position) const {
  const int64_t age = next_position - page.end_position();
  if (age < OpenTokens(layer) || page.first_position < ExactTokens(layer)) return false;
  return page.demoted_age < 0 ||
         (age > page.demoted_age && RungsAt(layer, age) != RungsAt(layer, page.demoted_age));
}

void ReferenceCache::Store(Part part, const Rung& rung, int layer, ReferencePage& page) const {
  const bool key = part == Part::kKey;
  const int dim = key ? shape_.key_dim : shape_.value_dim;
  const int num_rows = static_cast<int>(page.rows.size());
  for (int head = 0; head < shape_.num_kv_heads; ++head) {
    const StripShape strip_shape = {layer, head, dim, shape_.page_tokens};
    const auto of_head = [&](ReferenceRow& row) {
      return (key ? row.key : row.value).begin() + head * dim;
    };
    std::vector<float> rows;
    for (ReferenceRow& row : page.rows) rows.insert(rows.end(), of_head(row), of_head(row) + dim);
    // A vector of doubles is aligned for any strip.
    std::vector<double> strip(rung.StripBytes(part, strip_shape) / sizeof(double) + 1);
    auto* bytes = reinterpret_cast<std::byte*>(strip.data());
    rung.Encode(part, strip_shape, rows.data(), num_rows, bytes);
    rung.Decode(part, strip_shape, bytes, 0, num_rows, rows.data());
    for (int i = 0; i < num_rows; ++i)
      std::copy_n(rows.begin() + i * dim, dim, of_head(page.rows[i]));
  }
}

// --- sequences ---

void ReferenceCache::Create(SequenceId id) {
  Sequence sequence;
  sequence.layers.resize(shape_.num_layers);
  sequence.views.resize(shape_.num_layers);
  sequences_[id.value] = sequence;
}

void ReferenceCache::Kill(Pages& pages, int64_t begin, int64_t end) const {
  for (ReferencePage& page : pages) {
    for (ReferenceRow& row : page.rows) {
      if (row.position >= begin && row.position < end) row.live = false;
    }
  }
  std::erase_if(pages, [](const ReferencePage& page) { return page.num_live() == 0; });
}

void ReferenceCache::Truncate(SequenceId id, int64_t position) {
  Sequence& sequence = sequences_.at(id.value);
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    Pages& pages = sequence.layers[layer];
    Kill(pages, position, sequence.next_position);
    for (ReferencePage& page : pages) {
      if (page.end_position() <= position) continue;
      std::erase_if(page.rows,
                    [position](const ReferenceRow& row) { return row.position >= position; });
      // Rows that are still as exact as new ones may be followed by new ones.
      const Rung* open = OpenRung(layer);
      if (page.key_rung == open && page.value_rung == open) page.demoted_age = -1;
    }
  }
  sequence.next_position = position;
  sequence.prompt_begin = std::min(sequence.prompt_begin, position);
  std::erase_if(sequence.restarts, [&](const auto& restart) { return restart.first >= position; });
}

void ReferenceCache::RemoveRange(SequenceId id, int64_t begin, int64_t end) {
  for (Pages& pages : sequences_.at(id.value).layers) Kill(pages, begin, end);
}

void ReferenceCache::KeepOnly(SequenceId id, int64_t begin, int64_t end) {
  Sequence& sequence = sequences_.at(id.value);
  RemoveRange(id, 0, begin);
  RemoveRange(id, end, sequence.next_position);
}

void ReferenceCache::SlideWindow(SequenceId id, int64_t num_tokens, int64_t sink_tokens) {
  Sequence& sequence = sequences_.at(id.value);
  for (Pages& pages : sequence.layers) {
    std::erase_if(pages, [&](const ReferencePage& page) {
      return page.first_position >= sink_tokens &&
             page.end_position() <= sequence.next_position - num_tokens;
    });
  }
}

int64_t ReferenceCache::live_rows(SequenceId id, int layer) const {
  int64_t rows = 0;
  for (const ReferencePage& page : pages(id, layer)) rows += page.num_live();
  return rows;
}

// --- steps ---

void ReferenceCache::Append(int layer, SequenceId id, const float* keys, const float* values,
                            int num_tokens) {
  Sequence& sequence = sequences_.at(id.value);
  Pages& pages = sequence.layers[layer];
  const Rung* open = OpenRung(layer);
  const size_t key_floats = static_cast<size_t>(shape_.num_kv_heads) * shape_.key_dim;
  const size_t value_floats = static_cast<size_t>(shape_.num_kv_heads) * shape_.value_dim;
  for (int t = 0; t < num_tokens; ++t) {
    const auto before = static_cast<int64_t>(sequence.views[layer].size());
    const int64_t position = sequence.next_position + before;
    ReferencePage fresh = {position, {}, open, open, -1};
    fresh.rows.push_back({position,
                          true,
                          {keys + t * key_floats, keys + (t + 1) * key_floats},
                          {values + t * value_floats, values + (t + 1) * value_floats}});
    Store(Part::kKey, *open, layer, fresh);
    Store(Part::kValue, *open, layer, fresh);
    if (CanGrow(pages, position)) {
      pages.back().rows.push_back(fresh.rows[0]);
    } else {
      pages.push_back(fresh);
    }
    sequence.views[layer].push_back(pages);
    if (!Waits(sequence, layer)) Age(pages, layer, position + 1);
  }
}

void ReferenceCache::Commit(SequenceId id, int num_tokens) {
  Sequence& sequence = sequences_.at(id.value);
  sequence.next_position += num_tokens;
  for (std::vector<Pages>& views : sequence.views) views.clear();
}

void ReferenceCache::Demote(ReferencePage& page, int layer, const RungPair& rungs) const {
  const auto [key_rung, value_rung] = rungs;
  if (key_rung != page.key_rung) Store(Part::kKey, *key_rung, layer, page);
  if (value_rung != page.value_rung) Store(Part::kValue, *value_rung, layer, page);
  page.key_rung = key_rung;
  page.value_rung = value_rung;
}

void ReferenceCache::Rest(SequenceId id, int64_t begin, int64_t end) {
  Sequence& sequence = sequences_.at(id.value);
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    const LayerRule& rule = RuleOf(layer);
    if (!rule.idle_k && !rule.idle_v) continue;
    Pages& pages = sequence.layers[static_cast<size_t>(layer)];
    for (size_t i = 0; i < pages.size(); ++i) {
      ReferencePage& page = pages[i];
      const bool is_inside = page.first_position >= begin && page.end_position() <= end;
      if (!is_inside || !Complete(pages, i) || page.first_position < ExactTokens(layer)) continue;
      page.demoted_age = kForEver;
      Demote(page, layer, RungsAtRest(layer));
    }
  }
}

void ReferenceCache::Age(Pages& pages, int layer, int64_t next_position) const {
  Pages kept;
  for (size_t i = 0; i < pages.size(); ++i) {
    ReferencePage& page = pages[i];
    if (Complete(pages, i)) {
      if (FallsOutOfWindow(layer, page, next_position)) continue;
      if (IsDueToDemote(layer, page, next_position)) {
        page.demoted_age = next_position - page.end_position();
        Demote(page, layer, RungsAt(layer, page.demoted_age));
      }
    }
    kept.push_back(page);
  }
  pages = std::move(kept);
}

// --- attention ---

ReferenceAttention ReferenceCache::Attend(int layer, SequenceId id, const float* queries,
                                          int num_queries, int64_t first_position,
                                          const AttendOptions& options) const {
  const std::vector<Pages>& views = sequences_.at(id.value).views[layer];
  const int heads = shape_.num_kv_heads * shape_.group_size;
  const int key_dim = shape_.key_dim;
  const int value_dim = shape_.value_dim;
  const double scale =
      options.scale != 0.0f ? options.scale : 1.0 / std::sqrt(static_cast<double>(key_dim));
  ReferenceAttention result;
  for (int i = 0; i < num_queries * heads; ++i) {
    const int64_t query_position = first_position + i / heads;
    const int64_t token = query_position - next_position(id);
    const Pages& table = views.empty() || token < 0 ? pages(id, layer)
                         : options.causal           ? views[static_cast<size_t>(token)]
                                                    : views.back();
    const int kv_head = i % heads / shape_.group_size;
    const float* query = queries + static_cast<size_t>(i) * key_dim;
    struct Seen {
      const ReferenceRow* row;
      size_t page;
      double score;
    };
    std::vector<Seen> seen;
    double max = -std::numeric_limits<double>::infinity();
    for (size_t p = 0; p < table.size(); ++p) {
      for (const ReferenceRow& row : table[p].rows) {
        if (!row.live || (options.causal && row.position > query_position)) continue;
        if (options.window > 0 && row.position <= query_position - options.window) continue;
        double score = 0.0;
        for (int d = 0; d < key_dim; ++d)
          score += static_cast<double>(query[d]) * row.key[kv_head * key_dim + d];
        score *= scale;
        if (options.soft_cap > 0.0f) score = options.soft_cap * std::tanh(score / options.soft_cap);
        seen.push_back({&row, p, score});
        max = std::max(max, score);
      }
    }
    if (std::isinf(max) && max < 0) max = 0.0;  // nothing seen, or nothing but NaN
    double sum = 0.0;
    for (const Seen& s : seen) sum += std::exp(s.score - max);
    const size_t out = result.output.size();
    const size_t mass = result.mass.size();
    result.output.resize(out + value_dim, 0.0);
    result.mass.resize(mass + table.size(), 0.0);
    result.log_sum_exp.push_back(max + std::log(sum));
    for (const Seen& s : seen) {
      const double weight = std::exp(s.score - max) / sum;
      result.mass[mass + s.page] += weight;
      const float* value = s.row->value.data() + static_cast<size_t>(kv_head) * value_dim;
      for (int d = 0; d < value_dim; ++d) result.output[out + d] += weight * value[d];
    }
  }
  return result;
}

}  // namespace varve

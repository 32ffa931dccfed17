// The part of CacheFile that checks pages and tables: after it, every index of a record may be
// used and every page has the rungs that its layer's plan knows.

#include <algorithm>
#include <bit>
#include <cmath>

#include "file/cache_file_reader.h"

namespace varve {
namespace {

constexpr uint32_t kMaxTokensPerRow = 1024;
// A mass is at most 1 per query, and counts of queries are far below this.
constexpr double kMaxScoreSum = 1e12;
constexpr int32_t kMaxScoreCount = 1 << 30;
constexpr uint64_t kMaxPlanBytes = uint64_t{1} << 40;

// The bits of rows [rows, 128) of a live mask.
bool HasBitsFrom(const std::array<uint64_t, 2>& live, uint32_t rows) {
  for (uint32_t row = rows; row < 128; ++row) {
    if ((live[row / 64] >> (row % 64) & 1) != 0) return true;
  }
  return false;
}

bool InRange(double value, double lowest) {
  return std::isfinite(value) && value >= lowest && value <= kMaxScoreSum;
}

}  // namespace

Status CacheFile::ParsePages() {
  pages_ = Records<PageRecord>(SectionKind::kPages);
  if (pages_.size() != header_.num_pages)
    return Bad("num_pages {} is not {}, the records", header_.num_pages, pages_.size());
  uint64_t offset = header_.payload_offset;
  uint32_t layer = 0;
  for (size_t i = 0; i < pages_.size(); ++i) {
    VARVE_RETURN_IF_ERROR(CheckPage(i));
    const PageRecord& page = pages_[i];
    if (page.layer < layer)
      return Bad("page {}: layer {} < {}, the one before", i, page.layer, layer);
    layer = page.layer;
    // At most one alignment past the end of the file: no overflow.
    offset = AlignUp(offset, page.Alignment(header_));
    if (page.offset != offset) return Bad("page {}: offset {} is not {}", i, page.offset, offset);
    if (offset > bytes_.size() || page.stored_bytes > bytes_.size() - offset) {
      return Bad("page {}: {} bytes at {} > the file's {}", i, page.stored_bytes, offset,
                 bytes_.size());
    }
    offset += page.stored_bytes;
  }
  offset = AlignUp(offset, header_.Alignment());
  if (offset != bytes_.size())
    return Bad("file_bytes {} is not {}, the end of the last page", bytes_.size(), offset);
  std::vector<bool> has_predecessor(pages_.size());
  for (size_t i = 0; i < pages_.size(); ++i) {
    const PageRecord& page = pages_[i];
    if (page.successor == 0) continue;
    if (page.successor > pages_.size() || page.successor - 1 == i)
      return Bad("page {}: successor {} is no other page", i, page.successor);
    const PageRecord& next = pages_[page.successor - 1];
    if (next.layer != page.layer || next.first_position != page.first_position ||
        next.rows != page.rows || next.tokens_per_row != page.tokens_per_row) {
      return Bad("page {}: successor {} holds other rows", i, page.successor);
    }
    if (has_predecessor[page.successor - 1])
      return Bad("page {}: successor {} has another predecessor", i, page.successor);
    has_predecessor[page.successor - 1] = true;
  }
  return Status();
}

Status CacheFile::CheckPage(size_t index) const {
  const PageRecord& page = pages_[index];
  if (page.layer >= header_.num_layers)
    return Bad("page {}: layer {} > {}", index, page.layer, header_.num_layers - 1);
  if (page.state < kStateFilling || page.state > kStateSealed)
    return Bad("page {}: state {} is outside {} … {}", index, page.state, kStateFilling,
               kStateSealed);
  if (page.encoding != static_cast<uint16_t>(PageEncoding::kRaw) && !page.IsPacked())
    return Bad("page {}: encoding {} is not known", index, page.encoding);
  if (page.IsPacked() && page.state != kStateSealed)
    return Bad("page {}: state {} of a packed page is not {}", index, page.state, kStateSealed);
  if (page.rows < 1 || page.rows > header_.page_tokens)
    return Bad("page {}: rows {} is outside 1 … {}", index, page.rows, header_.page_tokens);
  if (page.tokens_per_row < 1 || page.tokens_per_row > kMaxTokensPerRow)
    return Bad("page {}: tokens_per_row {} is outside 1 … {}", index, page.tokens_per_row,
               kMaxTokensPerRow);
  if (page.first_position < 0 || page.first_position > kMaxFilePosition)
    return Bad("page {}: first_position {} is outside 0 … {}", index, page.first_position,
               kMaxFilePosition);
  const auto check_rung = [&](const char* field, uint32_t rung, int dim) {
    if (rung >= rungs_.size())
      return Bad("page {}: {} {} >= {}, the rungs", index, field, rung, rungs_.size());
    const Status status = rungs_[rung]->CheckDim(dim);
    return status.ok() ? status : Bad("page {}: {}: {}", index, field, status.message());
  };
  VARVE_RETURN_IF_ERROR(check_rung("key_rung", page.key_rung, shape_.key_dim));
  VARVE_RETURN_IF_ERROR(check_rung("value_rung", page.value_rung, shape_.value_dim));
  const uint64_t bytes =
      static_cast<uint64_t>(shape_.num_kv_heads) *
      (rungs_[page.key_rung]->StripBytes(Part::kKey, {0, 0, shape_.key_dim, shape_.page_tokens}) +
       rungs_[page.value_rung]->StripBytes(Part::kValue,
                                           {0, 0, shape_.value_dim, shape_.page_tokens}));
  if (page.raw_bytes != bytes)
    return Bad("page {}: raw_bytes {} is not {}", index, page.raw_bytes, bytes);
  VARVE_RETURN_IF_ERROR(CheckStoredBytes(index));
  if (page.reserved != 0) return Bad("page {}: reserved is not 0", index);
  return Status();
}

Status CacheFile::ParseTables() {
  tables_ = Records<TableRecord>(SectionKind::kTables);
  entries_ = Records<EntryRecord>(SectionKind::kEntries);
  const uint64_t expected = uint64_t{header_.num_layers} * sequences_.size();
  if (tables_.size() != expected)
    return Bad("section tables: {} records, not {}", tables_.size(), expected);
  uint64_t next = 0;
  std::vector<bool> used(pages_.size());
  for (size_t sequence = 0; sequence < sequences_.size(); ++sequence) {
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      const TableRecord& record = table(sequence, layer);
      if (record.first_entry != next) {
        return Bad("sequence {}, layer {}: first_entry {} is not {}", sequence, layer,
                   record.first_entry, next);
      }
      if (record.num_entries > entries_.size() - next) {
        return Bad("sequence {}, layer {}: num_entries {} > {}, those left", sequence, layer,
                   record.num_entries, entries_.size() - next);
      }
      VARVE_RETURN_IF_ERROR(CheckTable(sequence, layer, &used));
      next += record.num_entries;
    }
  }
  if (next != entries_.size())
    return Bad("section entries: {} of {} belong to no table", entries_.size() - next,
               entries_.size());
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused != used.end()) return Bad("page {} is in no table", unused - used.begin());
  return Status();
}

Status CacheFile::CheckTable(size_t sequence, int layer, std::vector<bool>* used) const {
  const TableRecord& record = table(sequence, layer);
  const bool has_policy = layer_plans_[static_cast<size_t>(layer)].retention.has_value();
  if ((record.flags & ~TableRecord::kPlanPending) != 0 || (record.flags != 0 && !has_policy))
    return Bad("sequence {}, layer {}: flags {:#x} are not known here", sequence, layer,
               record.flags);
  const SequenceRecord& owner = sequences_[sequence];
  const bool prompt_open = (owner.flags & SequenceRecord::kPromptOpen) != 0;
  const int64_t most = prompt_open ? owner.next_position : 0;
  if (record.prompt_positions > most ||
      record.prompt_positions != table(sequence, 0).prompt_positions)
    return Bad("sequence {}, layer {}: prompt_positions {} is not in 0 … {} or not that of layer 0",
               sequence, layer, record.prompt_positions, most);
  if (record.plan_bytes > kMaxPlanBytes || (record.plan_bytes != 0 && !has_policy))
    return Bad("sequence {}, layer {}: plan_bytes {} > {}", sequence, layer, record.plan_bytes,
               has_policy ? kMaxPlanBytes : 0);
  int64_t position = 0;
  for (uint64_t i = record.first_entry; i < record.first_entry + record.num_entries; ++i) {
    VARVE_RETURN_IF_ERROR(CheckEntry(i, layer));
    const PageRecord& page = pages_[entries_[i].page];
    if (page.first_position < position) {
      return Bad("entry {}: its page begins at {} < {}, the end of the one before", i,
                 page.first_position, position);
    }
    position = page.first_position + int64_t{entries_[i].rows} * page.tokens_per_row;
    (*used)[entries_[i].page] = true;
  }
  if (position > sequences_[sequence].next_position) {
    return Bad("sequence {}, layer {}: the last page ends at {} > next_position {}", sequence,
               layer, position, sequences_[sequence].next_position);
  }
  return Status();
}

Status CacheFile::CheckEntry(size_t index, int layer) const {
  const EntryRecord& entry = entries_[index];
  const LayerForm& plan = layer_plans_[static_cast<size_t>(layer)];
  if (entry.page >= pages_.size())
    return Bad("entry {}: page {} >= {}, the pages", index, entry.page, pages_.size());
  const PageRecord& page = pages_[entry.page];
  if (page.layer != static_cast<uint32_t>(layer))
    return Bad("entry {}: page {} is of layer {}, not {}", index, entry.page, page.layer, layer);
  if (entry.rows < 1 || entry.rows > page.rows)
    return Bad("entry {}: rows {} is outside 1 … {}", index, entry.rows, page.rows);
  if (HasBitsFrom(entry.live, entry.rows))
    return Bad("entry {}: a live row behind the {} rows", index, entry.rows);
  if (std::popcount(entry.live[0]) + std::popcount(entry.live[1]) == 0)
    return Bad("entry {}: no live row", index);
  const auto num_stages = static_cast<int32_t>(plan.stages.size());
  if (entry.stage < -1 || entry.stage >= num_stages)
    return Bad("entry {}: stage {} is outside -1 … {}", index, entry.stage, num_stages - 1);
  const bool can_wish = plan.retention && entry.wish >= plan.first_demotion;
  if (entry.wish != -1 && (!can_wish || entry.wish >= num_stages))
    return Bad("entry {}: wish {} is no stage that a policy could want", index, entry.wish);
  const RungDescriptor* key =
      entry.stage < 0 ? plan.open_rung : plan.stages[static_cast<size_t>(entry.stage)].k;
  const RungDescriptor* value =
      entry.stage < 0 ? plan.open_rung : plan.stages[static_cast<size_t>(entry.stage)].v;
  if (rungs_[page.key_rung] != key || rungs_[page.value_rung] != value) {
    return Bad("entry {}: stage {} of layer {} has the rungs {} and {}, not {} and {}", index,
               entry.stage, layer, key->name, value->name, rungs_[page.key_rung]->name,
               rungs_[page.value_rung]->name);
  }
  if (entry.reserved != 0) return Bad("entry {}: reserved is not 0", index);
  return CheckScore(index);
}

Status CacheFile::CheckScore(size_t index) const {
  const EntryRecord& entry = entries_[index];
  const auto bad = [&](const char* field, double value) {
    return Bad("entry {}: {} {} is outside its range", index, field, value);
  };
  if (!InRange(entry.bucket_sum, 0)) return bad("bucket_sum", entry.bucket_sum);
  if (!InRange(entry.smooth, 0)) return bad("smooth", entry.smooth);
  if (!InRange(entry.last, 0)) return bad("last", entry.last);
  if (!InRange(entry.frozen, -1)) return bad("frozen", entry.frozen);
  for (const float bucket : entry.buckets) {
    if (!InRange(bucket, 0)) return bad("bucket", bucket);
  }
  if (entry.bucket_queries < 0 || entry.bucket_queries > kMaxScoreCount)
    return bad("bucket_queries", entry.bucket_queries);
  if (entry.num_buckets < 0 || entry.num_buckets > kMaxScoreCount)
    return bad("num_buckets", entry.num_buckets);
  return Status();
}

}  // namespace varve

#include "cuda/backend/attend_batch.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cuda/device_attention.h"

namespace varve::cuda {
namespace {

// Positions that a query may see: [begin, end).
struct Visible {
  int64_t begin = std::numeric_limits<int64_t>::min();
  int64_t end = std::numeric_limits<int64_t>::max();
};

Visible VisibleTo(int64_t position, const AttendOptions& options) {
  Visible visible;
  if (options.causal) visible.end = position + 1;
  if (options.window > 0) visible.begin = position - options.window + 1;
  return visible;
}

DevicePage RecordOf(const TableEntry& entry, const Visible& visible) {
  const Page& page = *entry.page;
  DevicePage record;
  record.bytes = page.raw();
  record.key_rung = static_cast<DeviceRung>(page.rung(Part::kKey).descriptor().id);
  record.value_rung = static_cast<DeviceRung>(page.rung(Part::kValue).descriptor().id);
  record.rows = static_cast<uint16_t>(entry.rows);
  LiveMask live = entry.live;
  const bool whole =
      page.RowPosition(0) >= visible.begin && page.RowPosition(entry.rows - 1) < visible.end;
  for (int row = 0; !whole && row < entry.rows; ++row) {
    const int64_t position = page.RowPosition(row);
    if (position < visible.begin || position >= visible.end) live.Fill(row, row + 1, false);
  }
  record.live[0] = live.words()[0];
  record.live[1] = live.words()[1];
  return record;
}

void AddQuery(std::span<const TableEntry> table, const Visible& visible, AttendBatch* batch) {
  // Positions ascend, so what is visible is one run of pages.
  const auto first = std::find_if(table.begin(), table.end(), [&](const TableEntry& entry) {
    return entry.rows > 0 && entry.page->RowPosition(entry.rows - 1) >= visible.begin;
  });
  batch->first_page.push_back(static_cast<int32_t>(first - table.begin()));
  for (auto entry = first; entry != table.end(); ++entry) {
    if (entry->rows == 0 || entry->page->RowPosition(0) >= visible.end) break;
    const DevicePage& record = batch->pages.emplace_back(RecordOf(*entry, visible));
    batch->pure_pages = batch->pure_pages && IsFloat(record.key_rung) == IsFloat(record.value_rung);
    batch->key_rungs |= RungBit(record.key_rung);
    batch->value_rungs |= RungBit(record.value_rung);
  }
  batch->page_begin.push_back(static_cast<int32_t>(batch->pages.size()));
  const int32_t count = batch->page_begin.back() - batch->page_begin.end()[-2];
  batch->max_pages = std::max(batch->max_pages, count);
}

// The first slot of a table whose row has a position of at least `position`. Asked with positions
// that never fall.
class SlotCursor {
 public:
  SlotCursor(std::span<const TableEntry> table, int page_tokens)
      : table_(table), page_tokens_(page_tokens) {
    SkipEmpty();
  }
  int32_t At(int64_t position) {
    while (entry_ < table_.size()) {
      const TableEntry& entry = table_[entry_];
      if (entry.page->RowPosition(entry.rows - 1) < position) {
        ++entry_;
        ++page_;
        row_ = 0;
        SkipEmpty();
      } else if (entry.page->RowPosition(row_) < position) {
        ++row_;
      } else {
        break;
      }
    }
    return page_ * page_tokens_ + row_;
  }

 private:
  void SkipEmpty() {
    while (entry_ < table_.size() && table_[entry_].rows == 0) ++entry_;
  }
  std::span<const TableEntry> table_;
  int32_t page_tokens_;
  size_t entry_ = 0;
  int32_t page_ = 0;  // of those that have rows
  int32_t row_ = 0;
};

void Clear(AttendBatch* batch) {
  batch->pages.clear();
  batch->page_begin.assign(1, 0);
  batch->first_page.clear();
  batch->visible.clear();
  batch->max_pages = 0;
  batch->key_rungs = batch->value_rungs = 0;
  batch->pure_pages = true;
}

}  // namespace

void FillPrompt(const AttentionRequest& request, const AttendOptions& options, int page_tokens,
                AttendBatch* batch) {
  Clear(batch);
  for (const TableEntry& entry : request.pages) {
    if (entry.rows > 0) batch->pages.push_back(RecordOf(entry, Visible()));
  }
  SlotCursor begin(request.pages, page_tokens), end(request.pages, page_tokens);
  for (int query = 0; query < request.request->num_queries; ++query) {
    const Visible seen = VisibleTo(request.first_query_position + query, options);
    batch->visible.push_back({begin.At(seen.begin), end.At(seen.end)});
  }
}

void FillBatch(std::span<const AttentionRequest> requests, const AttendOptions& options,
               AttendBatch* batch) {
  Clear(batch);
  for (const AttentionRequest& request : requests) {
    for (int query = 0; query < request.request->num_queries; ++query) {
      AddQuery(request.pages, VisibleTo(request.first_query_position + query, options), batch);
    }
  }
}

void ReportMasses(int layer, std::span<const AttentionRequest> requests, const AttendBatch& batch,
                  int num_heads, const float* page_lse, const float* lse,
                  AttentionObserver* observer) {
  std::vector<PageSpan> spans;
  std::vector<float> mass;
  const auto heads = static_cast<size_t>(num_heads);
  size_t query = 0;  // of the batch
  for (const AttentionRequest& request : requests) {
    spans.clear();
    for (const TableEntry& entry : request.pages) {
      spans.push_back({entry.page->first_position, entry.EndPosition() - entry.page->first_position,
                       entry.rows, entry.live.Count()});
    }
    const auto num_queries = static_cast<size_t>(request.request->num_queries);
    mass.assign(num_queries * heads * spans.size(), 0.0f);
    for (size_t q = 0; q < num_queries; ++q, ++query) {
      const auto first = static_cast<size_t>(batch.first_page[query]);
      for (auto record = batch.page_begin[query]; record < batch.page_begin[query + 1]; ++record) {
        const size_t page = first + static_cast<size_t>(record - batch.page_begin[query]);
        for (size_t head = 0; head < heads; ++head) {
          const float total = lse[query * heads + head];
          if (std::isinf(total) && total < 0) continue;  // it sees nothing
          mass[(q * heads + head) * spans.size() + page] =
              std::exp(page_lse[static_cast<size_t>(record) * heads + head] - total);
        }
      }
    }
    observer->OnAttention({layer, request.request->sequence, request.first_query_position,
                           request.request->num_queries, num_heads, spans, mass.data()});
  }
}

}  // namespace varve::cuda

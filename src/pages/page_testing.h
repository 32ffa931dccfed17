// What unit tests on pages share: a small shape, pages with random rows, and their rows again.

#ifndef VARVE_PAGES_PAGE_TESTING_H_
#define VARVE_PAGES_PAGE_TESTING_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/kernel_testing.h"
#include "pages/page_store.h"
#include "pages/page_table.h"
#include "rungs/rung_testing.h"
#include "store/part_codec.h"

namespace varve {

// Pages of 16 tokens, two KV heads with two query heads each, rows of 32 values.
inline CacheShape SmallPageShape(int num_layers = 1) {
  return {.num_layers = num_layers,
          .num_kv_heads = 2,
          .group_size = 2,
          .key_dim = 32,
          .value_dim = 32,
          .page_tokens = 16};
}

// The f32 rows [rows, dim] of one strip, whose raw bytes must be there.
inline std::vector<float> RowsOf(const PageStore& store, const Page& page, Part part, int head) {
  const StripShape shape = store.ShapeOf(part, page.layer, head);
  std::vector<float> rows(static_cast<size_t>(page.rows) * static_cast<size_t>(shape.dim));
  page.rung(part).Decode(part, shape, page.Strip(part, head), 0, page.rows, rows.data());
  return rows;
}

// Writes `rows` random rows into every strip of an empty page.
inline void FillPage(const PageStore& store, int num_kv_heads, int rows, TestRandom& random,
                     Page* page) {
  std::memset(page->raw(), 0, page->bytes);
  page->rows = rows;
  for (int head = 0; head < num_kv_heads; ++head) {
    for (const Part part : kParts) {
      const StripShape shape = store.ShapeOf(part, page->layer, head);
      const std::vector<float> values = random.Gaussians(static_cast<size_t>(rows) * shape.dim);
      page->rung(part).WriteRows(part, shape, page->Strip(part, head), 0, rows, values.data(),
                                 shape.dim);
    }
  }
}

// Every strip of a page, packed by itself without a dictionary.
inline PackedStrips PackStrips(const PageStore& store, int num_kv_heads, const Page& page) {
  PackedStrips strips;
  for (int head = 0; head < num_kv_heads; ++head) {
    for (const Part part : kParts) {
      const StripShape shape = store.ShapeOf(part, page.layer, head);
      const store::PartView view{PartShapeOf(page.rung(part), part, shape.dim, shape.page_tokens),
                                 page.Strip(part, head), 0};
      const std::vector<std::byte> packed = *store::Pack(view, nullptr);
      strips.bytes.insert(strips.bytes.end(), packed.begin(), packed.end());
      strips.ends.push_back(static_cast<uint32_t>(strips.bytes.size()));
    }
  }
  return strips;
}

// Adds pages with random rows for positions [table's end, until): full ones, and what is left.
inline void GrowTable(PageStore& store, const CacheShape& shape, int layer, int64_t until,
                      const Rung& rung, TestRandom& random, PageTable* table) {
  int64_t first = table->empty() ? 0 : table->back().EndPosition();
  while (first < until) {
    const int rows = static_cast<int>(std::min<int64_t>(shape.page_tokens, until - first));
    const PageState life = rows == shape.page_tokens ? PageState::kFull : PageState::kFilling;
    TableEntry entry;
    entry.page = *store.Make(layer, first, life, rung, rung);
    FillPage(store, shape.num_kv_heads, rows, random, entry.page.get());
    table->Add(std::move(entry));
    table->AddRows(table->size() - 1, rows);
    first += rows;
  }
}

}  // namespace varve

#endif  // VARVE_PAGES_PAGE_TESTING_H_

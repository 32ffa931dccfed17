// Backend: what a device does with the bytes of pages. A cache has one, chosen when it is made.
//
// The seam lies at whole operations: one call appends the rows of a layer for all sequences of a
// step's call, encodes a batch of pages, or attends for all requests of a layer. Nothing here is
// called per page. Tables, ages, plans and policies stay on the host and are the same for all.
//
// A back end owns no page. It reads and writes the bytes that the page store has taken from the
// back end's memory, through `Page`. One thread at a time may call it; it spreads its own work.

#ifndef VARVE_ATTENTION_BACKEND_H_
#define VARVE_ATTENTION_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "attention/split_attention.h"
#include "attention/stage_clock.h"
#include "pages/page.h"
#include "pages/page_table.h"
#include "varve/cache.h"
#include "varve/executor.h"

namespace varve {

// Rows that go behind those of a page, K and V.
struct AppendJob {
  Page* page = nullptr;  // raw, open
  int first_row = 0;
  RowsView keys;    // num_tokens rows
  RowsView values;  // as many
};

// A page in one pair of rungs to another. Both hold the same tokens.
struct EncodeJob {
  const Page* from = nullptr;  // in memory, raw or packed
  Page* to = nullptr;          // raw
  uint64_t replaced = 0;       // out: values that were not finite, or out of the format's range
  Status status;               // out: not ok if packed bytes could not be restored
};

struct AttentionRequest {
  const AttendRequest* request = nullptr;
  std::span<const TableEntry> pages;  // the table as these queries see it
  int64_t first_query_position = 0;   // of query 0; the others follow
};

// Strips of packed pages that attention has unpacked on the way, since creation.
struct UnpackedStrips {
  uint64_t strips = 0;
  uint64_t bytes = 0;
  double us = 0;  // summed over threads
};

class Backend {
 public:
  virtual ~Backend() = default;

  // The memory that pages of this back end live in. Not owned by the caller.
  virtual PageMemory* memory() = 0;

  // Writes rows of one layer into open pages.
  virtual void Append(int layer, std::span<const AppendJob> jobs) = 0;
  // Encodes pages, all in one call.
  virtual void Encode(std::span<EncodeJob> jobs) = 0;
  // Attention of all requests over one layer. They have been checked by the cache. Reports to
  // `observer` unless null. Fails, with the outputs undefined and nothing reported, if a packed
  // page cannot be restored.
  virtual Status Attend(int layer, const LayerSpaces& spaces,
                        std::span<const AttentionRequest> requests, const AttendOptions& options,
                        AttentionObserver* observer) = 0;
  // The page's raw strips, copied to the host; and a whole page's worth of bytes from there.
  virtual Status CopyOut(const Page& page, std::byte* to) = 0;
  virtual Status CopyIn(const std::byte* from, Page* page) = 0;

  virtual size_t scratch_bytes() const = 0;
  virtual UnpackedStrips unpacked() const = 0;
};

// The CPU. `memory` may be null: anonymous mappings. Nothing is owned; all outlive the back end.
std::unique_ptr<Backend> MakeCpuBackend(const CacheShape& shape, const Kernels& kernels,
                                        PageMemory* memory, Executor* executor,
                                        StageTotals* stages);

}  // namespace varve

#endif  // VARVE_ATTENTION_BACKEND_H_

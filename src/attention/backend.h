// Backend: what a device does with the bytes of pages. A cache has one, chosen when it is made.
//
// The seam lies at whole operations: one call appends the rows of a layer for all sequences of a
// step's call, encodes a batch of pages, or attends for all requests of a layer. Nothing here is
// called per page. Tables, ages, plans and policies stay on the host and are the same for all.
//
// A back end owns no page. It reads and writes the bytes that the page store has taken from the
// back end's memory, through `Page`. One thread at a time may call it; it spreads its own work.
//
// On a device work may still be under way when a call returns. It is done in the order of calls,
// and what goes to the host's memory is there on return.

#ifndef VARVE_ATTENTION_BACKEND_H_
#define VARVE_ATTENTION_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/split_attention.h"
#include "attention/stage_clock.h"
#include "pages/device_bytes.h"
#include "pages/page.h"
#include "pages/page_table.h"
#include "varve/cache.h"
#include "varve/executor.h"

namespace varve {

// Rows that go behind those of a page, K and V. f32 in the host's memory, or anything where the
// back end is.
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
  Status status;               // out: not ok if packed bytes could not be restored, or the device
                               // failed
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

  // That it has in all; 0: as much as the system gives.
  virtual uint64_t pool_bytes() const { return 0; }
  // How the host reaches the bytes; null where it addresses them.
  virtual DeviceBytes* device_bytes() { return nullptr; }

  // Writes rows of one layer into open pages. Values that the open rung cannot hold are replaced.
  virtual Status Append(int layer, std::span<const AppendJob> jobs) = 0;
  // Encodes pages, all in one call.
  virtual void Encode(std::span<EncodeJob> jobs) = 0;
  // Attention of all requests over one layer. They have been checked by the cache. Reports to
  // `observer` unless null. Fails, with the outputs undefined and nothing reported, if a packed
  // page cannot be restored.
  virtual Status Attend(int layer, const LayerSpaces& spaces,
                        std::span<const AttentionRequest> requests, const AttendOptions& options,
                        AttentionObserver* observer) = 0;
  virtual size_t scratch_bytes() const = 0;
  // Cache::SetStream.
  virtual Status SetStream(void*) {
    return FailedPrecondition("SetStream: the cache is in the memory of the CPU");
  }
  // Values that Append and Encode have replaced since creation, since they were not finite or out
  // of a rung's range; in steps that were rolled back too. A device is waited for.
  virtual uint64_t replaced() const = 0;
  virtual UnpackedStrips unpacked() const = 0;
};

// The CPU. `memory` may be null: anonymous mappings. Nothing is owned; all outlive the back end.
std::unique_ptr<Backend> MakeCpuBackend(const CacheShape& shape, const Kernels& kernels,
                                        PageMemory* memory, Executor* executor,
                                        StageTotals* stages);

// A rung that pages of a layer may have, for K or for V.
struct RungUse {
  int layer = 0;
  Part part = Part::kKey;
  const Rung* rung = nullptr;
};

// What a back end on a device is made for.
struct DeviceSetup {
  CacheShape shape;
  int device_index = 0;
  void* stream = nullptr;    // cudaStream_t of the caller; null: one of the back end's own
  uint64_t pool_bytes = 0;   // for pages, taken at once; 0: most of what is free
  uint64_t chunk_bytes = 0;  // > 0: not at once, but in pieces of so many, as pages need them
  std::vector<RungUse> rungs;
};

// A back end that has taken its memory, or why it cannot: a shape or a rung without kernels, no
// device, too little memory.
using MakeDeviceBackend = Result<std::unique_ptr<Backend>> (*)(const DeviceSetup& setup);

// The one for CUDA that is linked in (src/cuda/backend); null in a build without.
MakeDeviceBackend LinkedCudaBackend();

// The GPUs that it sees, by index.
struct DeviceInfo {
  std::string name;
  std::string architecture;  // sm_90
  int multiprocessors = 0;
  uint64_t total_bytes = 0;
};
std::vector<DeviceInfo> LinkedCudaDevices();

}  // namespace varve

#endif  // VARVE_ATTENTION_BACKEND_H_

// KV dumps: the keys and values of a run, in memory and as files (store/dump_meta.h has the
// layout).

#ifndef VARVE_CLI_LOSSLESS_KV_DUMP_H_
#define VARVE_CLI_LOSSLESS_KV_DUMP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/model_argument.h"
#include "store/dump_meta.h"
#include "store/part_image.h"
#include "varve/cache.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve::cli {

// K or V rows of one layer for consecutive tokens.
struct DumpRows {
  int layer = 0;
  Part part = Part::kKey;
  store::LaneType lane = store::LaneType::kF16;  // f16, bf16 or f32
  int num_heads = 0;
  int head_dim = 0;
  int64_t num_tokens = 0;
  int64_t seq_start = 0;
  std::vector<std::byte> bytes;  // [num_tokens, num_heads, head_dim]

  size_t row_bytes() const {
    return static_cast<size_t>(num_heads * head_dim) * (lane == store::LaneType::kF32 ? 4 : 2);
  }
};

const char* PartName(Part part);             // "k", "v"
const char* LaneName(store::LaneType lane);  // "f16", …
Result<store::LaneType> ParseLane(const std::string& option, const std::string& text);

// Reads `tokens` with a cache of that precision and gives the rows of every layer, K before V: keys
// after RoPE. `progress` as in DecoderRunner::Forward.
Result<std::vector<DumpRows>> DumpModel(const LoadedModel& model, Executor& executor,
                                        const std::vector<int32_t>& tokens, store::LaneType lane,
                                        const std::function<bool(int64_t)>& progress);

// Writes the rows in pieces of `chunk` tokens: DIR/layer_N/k_tA_B.bin, v_tA_B.bin, meta_tA_B.json.
// Refuses a folder that has layer_N in it already.
Status WriteDump(const std::string& folder, const std::vector<DumpRows>& rows, int64_t chunk,
                 const std::string& run_id);

// A piece of a dump: what one meta file names.
struct DumpPiece {
  store::DumpMeta meta;
  DumpRows keys;
  DumpRows values;
};
struct ReadDumpResult {
  std::vector<DumpPiece> pieces;      // by layer, then by first token
  std::vector<std::string> failures;  // one line for each meta file that could not be used
};
// All meta_*.json below a folder. Fails if there is none.
Result<ReadDumpResult> ReadDump(const std::string& folder);

// Rows [begin, begin + count) as a part in the layout of a page.
struct PagePart {
  store::PartShape shape;
  std::vector<std::byte> bytes;
  int64_t first_position = 0;
  store::PartView view() const { return {shape, bytes.data(), 0, first_position}; }
};
PagePart MakePagePart(const DumpRows& rows, int64_t begin, int64_t count);

}  // namespace varve::cli

#endif  // VARVE_CLI_LOSSLESS_KV_DUMP_H_

// DumpMeta: what the meta_tA_B.json of a KV dump says about its two files.
//
//   run/layer_N/k_tA_B.bin, v_tA_B.bin, meta_tA_B.json       tokens A … B-1 of layer N
// The files hold [seq_len, kv_heads, head_dim] values. Text that is read is not trusted: every
// field is checked, and a file name cannot lead out of the folder of the meta file.

#ifndef VARVE_STORE_DUMP_META_H_
#define VARVE_STORE_DUMP_META_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "varve/status.h"

namespace varve::store {

struct DumpMeta {
  std::string stage;   // "prefill", "decode"; free text
  std::string run_id;  // free text
  int layer_id = 0;    // 0 … 65535
  int64_t seq_start = 0;
  int64_t seq_len = 0;     // 1 … 2^31
  int kv_heads = 0;        // 1 … 1024
  int head_dim = 0;        // 1 … 512
  int bytes_per_elem = 0;  // 2 or 4
  std::string dtype;   // f16, bf16, f32; not in the original's files: 2 bytes are f16, 4 are f32
  std::string k_file;  // names without a folder
  std::string v_file;

  bool operator==(const DumpMeta&) const = default;

  // Bytes of one of the files; at most 2^52.
  uint64_t file_bytes() const {
    return static_cast<uint64_t>(seq_len) * static_cast<uint64_t>(kv_heads) *
           static_cast<uint64_t>(head_dim) * static_cast<uint64_t>(bytes_per_elem);
  }
};

// The message names the field. Unknown keys are ignored.
Result<DumpMeta> ParseDumpMeta(std::string_view json);
std::string FormatDumpMeta(const DumpMeta& meta);

}  // namespace varve::store

#endif  // VARVE_STORE_DUMP_META_H_

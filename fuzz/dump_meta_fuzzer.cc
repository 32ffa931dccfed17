// Meta files of KV dumps from strangers. A value that is read lies in its documented range, a file
// name has no folder, and the whole comes back from the text that it is written as.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "store/dump_meta.h"

namespace varve::store {
namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

bool IsFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<DumpMeta> meta = ParseDumpMeta(text);
  if (!meta.ok()) {
    Require(meta.status().message().starts_with("dump meta: "));
    return 0;
  }
  Require(IsFileName(meta->k_file) && IsFileName(meta->v_file));
  Require(meta->seq_len > 0 && meta->kv_heads > 0 && meta->head_dim > 0);
  Require(meta->file_bytes() <= uint64_t{1} << 53);
  const Result<DumpMeta> again = ParseDumpMeta(FormatDumpMeta(*meta));
  Require(again.ok() && *again == *meta);
  return 0;
}

}  // namespace varve::store

// Reads any bytes as a codebook file. If the first byte is odd, size and checksum are corrected
// first, so that the checks of the fields are reached. A codebook that parses must come back from
// the bytes that it is written as.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/content_hash.h"
#include "rungs/pq/codebook_format.h"
#include "varve/codebook.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void Repair(std::vector<std::byte>& bytes) {
  if (bytes.size() < varve::kCodebookHeaderBytes + sizeof(uint64_t)) return;
  const uint64_t size = bytes.size();
  std::memcpy(bytes.data() + 24, &size, sizeof(size));
  const size_t body = bytes.size() - sizeof(uint64_t);
  const uint64_t checksum = varve::HashBytes(bytes.data(), body);
  std::memcpy(bytes.data() + body, &checksum, sizeof(checksum));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(begin + 1, begin + size);
  if (data[0] % 2 == 1) Repair(bytes);
  const varve::Result<varve::Codebook> codebook = varve::ParseCodebook(bytes, "fuzz");
  if (!codebook.ok()) {
    Require(codebook.status().message().size() > 6);
    return 0;
  }
  Require(varve::CheckCodebook(*codebook).ok());
  Require(varve::SerializeCodebook(*codebook) == bytes);
  for (const varve::CodebookTable& table : codebook->tables) {
    Require(codebook->Find(table.part, table.num_subspaces, table.bits) == &table);
    const int last =
        codebook->GroupOf(table.grain, codebook->num_layers - 1, codebook->num_kv_heads - 1);
    Require(last == codebook->NumGroups(table.grain) - 1);
  }
  return 0;
}

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "rungs/block/block_rung.h"
#include "rungs/float/float_rung.h"
#include "rungs/pq/pq_rung.h"
#include "rungs/rung.h"

namespace varve {
namespace {

// In order of precision. A new family adds its rungs here.
const Rung* const* AllRungs(size_t* count) {
  static const FloatRung f32("f32", FloatType::kF32);
  static const FloatRung f16("f16", FloatType::kF16);
  static const FloatRung bf16("bf16", FloatType::kBF16);
  static const BlockRung q8_0("q8_0", BlockType::kQ8, false);
  static const BlockRung q8_0r("q8_0r", BlockType::kQ8, true);
  static const BlockRung q4_0("q4_0", BlockType::kQ4, false);
  static const BlockRung q4_0r("q4_0r", BlockType::kQ4, true);
  static const Rung* const rungs[] = {&f32, &f16, &bf16, &q8_0, &q8_0r, &q4_0, &q4_0r};
  *count = std::size(rungs);
  return rungs;
}

// Of every size that has been asked for: 512 x 9 at most.
const Rung* PqWithoutCodebook(const PqSize& size) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, std::unique_ptr<const PqRung>> rungs;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const PqRung>& rung = rungs[{size.subspaces, size.bits}];
  if (rung == nullptr) rung = std::make_unique<const PqRung>(size);
  return rung.get();
}

}  // namespace

const Rung* FindRung(std::string_view name, int dim) {
  if (const std::optional<PqSize> size = ParsePqName(name, dim))
    return size->subspaces > 0 ? PqWithoutCodebook(*size) : nullptr;
  size_t count = 0;
  const Rung* const* rungs = AllRungs(&count);
  for (size_t i = 0; i < count; ++i) {
    if (rungs[i]->name() == name) return rungs[i];
  }
  return nullptr;
}

std::string_view KnownRungNames() {
  static const std::string names = [] {
    size_t count = 0;
    const Rung* const* rungs = AllRungs(&count);
    std::string joined;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) joined += ' ';
      joined += rungs[i]->name();
    }
    return joined + " pq4 pq3 pq2";
  }();
  return names;
}

Result<double> RungBytesPerRow(const std::string& rung, Part, int dim, int page_tokens) {
  const Rung* found = FindRung(rung, dim);
  if (found == nullptr) {
    return InvalidArgument("unknown rung \"" + rung +
                           "\"; known: " + std::string(KnownRungNames()));
  }
  VARVE_RETURN_IF_ERROR(found->CheckDim(dim));
  if (page_tokens != 16 && page_tokens != 32 && page_tokens != 64 && page_tokens != 128) {
    return InvalidArgument("page_tokens " + std::to_string(page_tokens) +
                           " is not 16, 32, 64 or 128");
  }
  return static_cast<double>(found->StripBytes({0, 0, dim, page_tokens})) / page_tokens;
}

}  // namespace varve

#include "rungs/pq/pq_descriptor.h"

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/half.h"
#include "rungs/pq/pq_rung.h"

namespace varve {
namespace {

// The open window where a rule says nothing: codes are for tokens that have settled.
constexpr int64_t kPqOpenTokens = 128;

const PqSize& PqSizeOf(const RungDescriptor& rung) {
  return static_cast<const PqDescriptor&>(rung).size;
}

size_t PqStripBytes(const RungDescriptor& rung, Part, const StripShape& shape) {
  const PqSize& size = PqSizeOf(rung);
  return PqShape{shape.dim, size.subspaces, size.bits, shape.page_tokens}.strip_bytes();
}

Status CheckPqDim(const RungDescriptor& rung, int dim) {
  const int subspaces = PqSizeOf(rung).subspaces;
  if (dim % subspaces == 0) return Status();
  return InvalidArgument(
      fmt::format("rung {}: {} sub-spaces do not divide head_dim {}", rung.name, subspaces, dim));
}

// Gains are finite and not negative. Any code is the index of some centroid.
Status CheckPqStrip(const RungDescriptor& rung, Part, const StripShape& shape,
                    const std::byte* strip) {
  for (int token = 0; token < shape.page_tokens; ++token) {
    uint16_t bits;
    std::memcpy(&bits, strip + 2 * token, 2);
    if (bits <= 0x7BFF) continue;
    const float gain = F16ToF32(bits);
    return DataLoss(fmt::format("rung {}: gain {} is {}{}", rung.name, token, gain,
                                std::isfinite(gain) ? " < 0" : ", not finite"));
  }
  return Status();
}

Status CheckPqTable(const RungDescriptor& rung, const Codebook& codebook, Part part, int dim) {
  const PqSize& size = PqSizeOf(rung);
  const char* letter = part == Part::kKey ? "K" : "V";
  const CodebookTable* table = codebook.Find(part, size.subspaces, size.bits);
  if (table == nullptr) {
    std::string sizes;
    for (const CodebookTable& known : codebook.tables) {
      if (known.part != part) continue;
      sizes += (sizes.empty() ? "" : " ") + PqName({known.num_subspaces, known.bits});
    }
    return FailedPrecondition(
        fmt::format("rung {}: the codebook has no table of that size for {}; it has {}", rung.name,
                    letter, sizes.empty() ? "none" : sizes));
  }
  if (table->dim == dim) return Status();
  return InvalidArgument(fmt::format("rung {}: the codebook's {} rows have {} values, not {}",
                                     rung.name, letter, table->dim, dim));
}

std::unique_ptr<const Rung> MakePqRung(const RungDescriptor& rung, const RungBinding& binding) {
  return std::make_unique<const PqRung>(static_cast<const PqDescriptor&>(rung), binding);
}

struct NamedPqDescriptor {
  std::string name;
  PqDescriptor descriptor;
};

}  // namespace

const PqDescriptor& PqDescriptorOf(const PqSize& size) {
  static std::mutex mutex;
  static std::map<std::pair<int, int>, std::unique_ptr<const NamedPqDescriptor>> known;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const NamedPqDescriptor>& slot = known[{size.subspaces, size.bits}];
  if (slot == nullptr) {
    auto made = std::make_unique<NamedPqDescriptor>();
    made->name = PqName(size);
    made->descriptor = PqDescriptor{{.name = made->name,
                                     .id = RungId::kPq,
                                     .lane = LaneType::kBytes,
                                     .has_own_spaces = true,
                                     .open_tokens = kPqOpenTokens,
                                     .kernel_error = 4e-2,
                                     .strip_bytes = PqStripBytes,
                                     .check_dim = CheckPqDim,
                                     .check_strip = CheckPqStrip,
                                     .check_codebook = CheckPqTable,
                                     .make = MakePqRung},
                                    size};
    slot = std::move(made);
  }
  return slot->descriptor;
}

const RungDescriptor* FindPqRung(std::string_view name, int dim) {
  const std::optional<PqSize> size = ParsePqName(name, dim);
  return size && size->subspaces > 0 ? &PqDescriptorOf(*size) : nullptr;
}

}  // namespace varve

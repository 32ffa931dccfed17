// RungDescriptor and the table of rungs: everything that can be known of a rung without its
// kernels and without a codebook. The grammar of plans, the reader and writer of files, packing,
// demotion, the benchmark's tolerances, error messages and the tests read this one table, so a new
// rung is a new folder beside float/, block/, turned/ and pq/ and its rows in rung_table.cc.
//
// Not here: the codec and attention (Rung, rung.h), which a descriptor makes for a set of kernels
// and, where it needs one, a codebook.
//
// A *strip* is the part of a page that belongs to one KV head: page_tokens rows of `dim` values.
// Descriptors are immutable and live for the whole process; all calls may run at once.

#ifndef VARVE_RUNGS_RUNG_TABLE_H_
#define VARVE_RUNGS_RUNG_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/lane_type.h"
#include "varve/cache.h"
#include "varve/status.h"

namespace varve {

class Rung;
struct Codebook;
struct Kernels;

struct StripShape {
  int layer = 0;
  int kv_head = 0;
  int dim = 0;
  int page_tokens = 0;  // 16, 32, 64 or 128
};

// Never reused. Rungs of one family of sizes share one.
enum class RungId : uint8_t {
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kQ8_0 = 4,
  kQ8_0r = 5,
  kQ4_0 = 6,
  kQ4_0r = 7,
  kPq = 8,
  kT4 = 9,
  kT3 = 10,
  kT2 = 11,
};

// What a rung's codec and attention work with.
struct RungBinding {
  const Kernels* kernels = nullptr;          // never null
  std::shared_ptr<const Codebook> codebook;  // where the rung needs one; it has passed its check
};

struct RungDescriptor {
  std::string_view name;
  RungId id = RungId::kF32;
  LaneType lane = LaneType::kBytes;  // for pack=; kBytes fits strips of any even size
  // Whether single rows can be written in place, so that open pages may use the rung.
  bool can_append = false;
  // Whether queries for its keys, or sums of its values, are kept apart from those of every other
  // rung. A layer has room for kMaxOwnSpaces of these.
  bool has_own_spaces = false;
  int dim_multiple = 16;    // head_dim must be one, from it to kMaxDim
  int64_t open_tokens = 0;  // open=N where a rule says nothing
  // Relative RMS error that attention may have against exact arithmetic on the decoded rows.
  double kernel_error = 0;

  size_t (*strip_bytes)(const RungDescriptor&, Part, const StripShape&) = nullptr;
  // What dim_multiple does not say. Null: nothing more.
  Status (*check_dim)(const RungDescriptor&, int dim) = nullptr;
  // Of bytes that a stranger wrote. Null: attention can use any.
  Status (*check_strip)(const RungDescriptor&, Part, const StripShape&, const std::byte*) = nullptr;
  // Ok if the codebook serves rows of that part; names what it lacks. Null: needs no codebook.
  Status (*check_codebook)(const RungDescriptor&, const Codebook&, Part, int dim) = nullptr;
  // The expected squared error of a row relative to its energy, 0 … 1. Null: by its bits alone.
  double (*expected_error)(const RungDescriptor&, const StripShape&) = nullptr;
  std::unique_ptr<const Rung> (*make)(const RungDescriptor&, const RungBinding&) = nullptr;

  bool needs_codebook() const { return check_codebook != nullptr; }
  // Ok if rows of `dim` values can be stored; otherwise names dim and the limit.
  Status CheckDim(int dim) const;
  size_t StripBytes(Part part, const StripShape& shape) const {
    return strip_bytes(*this, part, shape);
  }
  // All bytes of a strip counted: 4.5 for q4_0.
  double BitsPerValue(Part part, const StripShape& shape) const {
    return 8.0 * static_cast<double>(StripBytes(part, shape)) / shape.dim / shape.page_tokens;
  }
  // For strips from a file: ok if attention can use the bytes as they are. What a rung's encoder
  // writes always is.
  Status CheckStrip(Part part, const StripShape& shape, const std::byte* strip) const {
    return check_strip != nullptr ? check_strip(*this, part, shape, strip) : Status();
  }
  double ExpectedError(const StripShape& shape) const;
  std::unique_ptr<const Rung> Make(const RungBinding& binding) const;
};

// Rungs whose names have numbers in them: more than a table can hold.
struct RungFamily {
  std::string_view pattern;  // for messages: "pqMxB (B 4 to 12)"
  std::string_view aliases;  // names that mean a member by the rows' dim, separated by blanks
  bool (*knows)(std::string_view name);
  // The member, the same for the whole process; null if `dim` is needed and has none.
  const RungDescriptor* (*find)(std::string_view name, int dim);
};

// The rung of that name, or null. Aliases (pq4, …) mean something for rows of `dim` values only.
const RungDescriptor* FindRung(std::string_view name, int dim = 0);

// Whether there is a rung of that name for rows of some dim.
bool IsRungName(std::string_view name);

// Rungs and aliases one by one, in order of precision; no patterns.
std::vector<std::string_view> RungNames();
// The same of the rungs that open pages may use.
std::vector<std::string_view> AppendableRungNames();
// "f32 f16 … pqMxB (B 4 to 12) pq4 pq3 pq2", for messages.
std::string KnownRungNames();

}  // namespace varve

#endif  // VARVE_RUNGS_RUNG_TABLE_H_

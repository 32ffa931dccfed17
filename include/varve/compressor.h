// Compressor: what fold= has learned of a model: `factor` consecutive tokens become one row.
//
// Per layer there are small networks for the keys and the values of text and, if the file has them,
// of an image prefix. Each takes the rows of `factor` tokens of one KV head side by side and gives
// one row: Linear, ReLU, Linear, ReLU, Linear. All KV heads of a layer share them. Keys are folded
// as they are stored, after RoPE.
//
// A compressor is plain data until it is checked: CheckCompressor says whether a cache can use it,
// and parsing checks. Immutable when shared; any number of caches may use one.

#ifndef VARVE_COMPRESSOR_H_
#define VARVE_COMPRESSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "varve/export.h"
#include "varve/status.h"

namespace varve {

// Limits. A shape within them has at most 2^30 numbers.
inline constexpr int kMaxCompressorLayers = 1024;
inline constexpr int kMaxCompressorHeads = 1024;
inline constexpr int kMinCompressorDim = 16;  // and a multiple of it
inline constexpr int kMaxCompressorDim = 512;
inline constexpr int kMinCompressorFactor = 2;
inline constexpr int kMaxCompressorFactor = 64;
inline constexpr int kMaxCompressorGroups = 1 << 24;  // of the threshold
// Of a block: the widest input that factor and head_dim allow. Hidden widths have the same limit.
inline constexpr int kMaxCompressorWidth = kMaxCompressorFactor * kMaxCompressorDim;

// How numbers are stored; the values are those of the file.
enum class CompressorDtype : uint16_t { kF16 = 0, kBF16 = 1, kF32 = 2 };

// "f16", "bf16", "f32".
VARVE_API const char* CompressorDtypeName(CompressorDtype dtype);
// Bytes of one number.
VARVE_API size_t CompressorDtypeBytes(CompressorDtype dtype);

// y = W x + b
struct CompressorLinear {
  int rows = 0;                    // outputs
  int cols = 0;                    // inputs
  std::vector<std::byte> weights;  // [rows, cols] in the compressor's dtype
  std::vector<float> bias;         // [rows], each a value of the dtype; or empty
  bool operator==(const CompressorLinear&) const = default;
};

inline constexpr int kMaxCompressorSlots = 3;
// What the MLP's layers are called in a state dict: a ReLU and a dropout lie between them.
inline constexpr std::array<int, kMaxCompressorSlots> kCompressorSlotNumbers = {0, 3, 6};
// A row of factor * head_dim values to one of head_dim; a ReLU between the layers.
struct CompressorMlp {
  std::array<CompressorLinear, kMaxCompressorSlots> slots;  // the first num_slots; others are empty
  bool operator==(const CompressorMlp&) const = default;
};

// Which rows a network is for, in the order of the file.
enum class CompressorPart : uint8_t {
  kTextKey = 0,
  kTextValue = 1,
  kImageKey = 2,
  kImageValue = 3
};
inline constexpr int kCompressorParts = 4;
// "compress_tk", "compress_tv", "compress_ik", "compress_iv": the names of the weights.
VARVE_API const char* CompressorPartName(CompressorPart part);

struct Compressor {
  CompressorDtype dtype = CompressorDtype::kF16;
  int num_heads = 0;   // KV heads of the model it is for; 0: any number
  int head_dim = 0;    // a multiple of 16 up to 512; K and V alike
  int factor = 0;      // tokens a row, 2 … 64
  int min_groups = 0;  // a segment of fewer groups stays as it is (min_seq_len of the file)
  int num_slots = kMaxCompressorSlots;  // linear layers of each network, 1 … 3
  bool has_image = false;
  // Per layer by CompressorPart; without has_image the last two are empty.
  std::vector<std::array<CompressorMlp, kCompressorParts>> layers;

  int num_layers() const { return static_cast<int>(layers.size()); }
  const CompressorMlp& Mlp(int layer, CompressorPart part) const {
    return layers[static_cast<size_t>(layer)][static_cast<size_t>(part)];
  }
  // Of all numbers, as stored.
  VARVE_API size_t bytes() const;
  bool operator==(const Compressor&) const = default;
};

// Ok if every field is within its limits, every weight is finite, and shapes chain: factor *
// head_dim in, head_dim out. The message names layer, block, field, value and limit.
VARVE_API Status CheckCompressor(const Compressor& compressor);

// The order of blocks within a layer of a file: prefix by prefix, in each slot by slot.
struct CompressorOrder {
  std::array<CompressorPart, kCompressorParts> parts = {
      CompressorPart::kTextKey, CompressorPart::kTextValue, CompressorPart::kImageKey,
      CompressorPart::kImageValue};
  std::vector<int> slots = {0, 1, 2};  // which of the MLP's layers comes when; one to three
  bool operator==(const CompressorOrder&) const = default;
};

// "tv/tk/ik/iv:6/3/0", as the clause fold_order= has it: parts that are not named follow in the
// default order; behind a colon come one to three slots. Either side may be missing.
VARVE_API Result<CompressorOrder> ParseCompressorOrder(std::string_view text);

// Whether the bytes begin as a compressor file does.
VARVE_API bool IsCompressor(std::span<const std::byte> bytes);

// The file (docs/format/compressor.md). Serialize requires CheckCompressor to be ok. Slots that the
// compressor does not have are left out of the order. An order that is not the default is written
// into the file's metadata.
VARVE_API std::vector<std::byte> SerializeCompressor(const Compressor& compressor,
                                                     const CompressorOrder& order = {});
// `order` is for files that do not say theirs, which files of other programs do not; without it
// they have the default. If a file says another one it is refused. `name` is for messages. Whatever
// the bytes are, the answer is a Compressor that passes CheckCompressor, or a Status:
// kInvalidArgument if it is no compressor, kUnimplemented for another version, kDataLoss if it is
// damaged.
VARVE_API Result<Compressor> ParseCompressor(
    std::span<const std::byte> bytes, const std::string& name,
    const std::optional<CompressorOrder>& order = std::nullopt);
VARVE_API Result<std::shared_ptr<const Compressor>> LoadCompressor(
    const std::string& path, const std::optional<CompressorOrder>& order = std::nullopt);
// Atomic: the file is there whole or not at all.
VARVE_API Status SaveCompressor(const Compressor& compressor, const std::string& path,
                                const CompressorOrder& order = {});

// XXH3-64 of what it computes: shapes, numbers, factor and threshold.
VARVE_API uint64_t CompressorHash(const Compressor& compressor);

}  // namespace varve

#endif  // VARVE_COMPRESSOR_H_

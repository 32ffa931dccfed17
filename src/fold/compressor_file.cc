// The compressor file: docs/format/compressor.md.

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/byte_io.h"
#include "base/half.h"
#include "base/mapped_file.h"
#include "fold/compressor_format.h"
#include "kernels/content_hash.h"

namespace varve {
namespace {

bool IsImage(CompressorPart part) { return part >= CompressorPart::kImageKey; }

uint32_t NumParts(bool has_image) {
  return has_image ? uint32_t{kCompressorParts} : kCompressorTextParts;
}

// The slots of a file with so many blocks a layer, if nothing says; 0: no such file.
uint32_t SlotsOf(uint32_t num_blocks) {
  for (uint32_t slots = kMaxCompressorSlots; slots > 0; --slots) {
    for (const bool has_image : {false, true}) {
      if (num_blocks == slots * NumParts(has_image)) return slots;
    }
  }
  return 0;
}

// The order without the slots that networks of num_slots do not have.
CompressorOrder WithSlots(CompressorOrder order, int num_slots) {
  std::erase_if(order.slots, [num_slots](int slot) { return slot >= num_slots; });
  return order;
}

void AppendBias(std::vector<std::byte>& out, const std::vector<float>& bias,
                CompressorDtype dtype) {
  for (const float value : bias) {
    if (dtype == CompressorDtype::kF16) AppendNumber(out, F32ToF16(value));
    if (dtype == CompressorDtype::kBF16) AppendNumber(out, F32ToBF16(value));
    if (dtype == CompressorDtype::kF32) AppendNumber(out, std::bit_cast<uint32_t>(value));
  }
}

// With `num_heads` instead of the compressor's own.
std::vector<std::byte> Serialize(const Compressor& compressor, const CompressorOrder& order,
                                 int num_heads, std::string_view metadata) {
  const uint32_t num_blocks =
      NumParts(compressor.has_image) * static_cast<uint32_t>(compressor.num_slots);
  std::vector<std::byte> out;
  out.reserve(kCompressorHeaderBytes + metadata.size() + compressor.bytes() +
              compressor.layers.size() * num_blocks * kCompressorBlockHeaderBytes);
  AppendNumber(out, kCompressorMagic);
  AppendNumber(out, kCompressorVersion);
  AppendNumber(out, static_cast<uint16_t>(compressor.dtype));
  AppendNumber(out, uint16_t{0});
  for (const int field :
       {compressor.num_layers(), num_heads, compressor.head_dim,
        compressor.factor * compressor.head_dim, compressor.factor, compressor.min_groups}) {
    AppendNumber(out, static_cast<uint32_t>(field));
  }
  AppendNumber(out, num_blocks);
  AppendNumber(out, static_cast<uint32_t>(metadata.size()));
  AppendBytes(out, std::as_bytes(std::span(metadata)));
  for (int layer = 0; layer < compressor.num_layers(); ++layer) {
    for (const CompressorPart part : order.parts) {
      if (IsImage(part) && !compressor.has_image) continue;
      for (const int slot : order.slots) {
        const CompressorLinear& linear =
            compressor.Mlp(layer, part).slots[static_cast<size_t>(slot)];
        AppendNumber(out, static_cast<uint32_t>(linear.rows));
        AppendNumber(out, static_cast<uint32_t>(linear.cols));
        AppendNumber(out, linear.bias.empty() ? uint32_t{0} : uint32_t{1});
        AppendBytes(out, linear.weights);
        AppendBias(out, linear.bias, compressor.dtype);
      }
    }
  }
  return out;
}

class CompressorReader {
 public:
  CompressorReader(std::span<const std::byte> bytes, const std::string& name,
                   const std::optional<CompressorOrder>& given)
      : bytes_(bytes), name_(name), given_(given), reader_(name_.c_str(), bytes) {}

  Result<Compressor> Read() {
    const Status checked_order = given_ ? CheckCompressorOrder(*given_) : Status();
    if (!checked_order.ok()) {
      return InvalidArgument(fmt::format("{}: {}", name_, checked_order.message()));
    }
    VARVE_RETURN_IF_ERROR(ReadBegin());
    VARVE_RETURN_IF_ERROR(ReadHeader());
    for (uint32_t layer = 0; layer < num_layers_; ++layer) {
      VARVE_RETURN_IF_ERROR(ReadLayer(layer));
    }
    VARVE_RETURN_IF_ERROR(reader_.Finish());
    VARVE_RETURN_IF_ERROR(FillInSizes());
    const Status checked = CheckCompressor(compressor_);
    if (!checked.ok()) return reader_.Bad(checked.message());
    return std::move(compressor_);
  }

 private:
  Status ReadBegin();
  Status ReadHeader();
  Status CheckSizes() const;
  Status ReadOrder(std::string_view metadata);
  Status FillInSizes();
  Status ReadLayer(uint32_t layer);
  Status ReadBlock(const std::string& at, CompressorLinear& linear);
  Status CheckRange(const std::string& field, uint64_t value, uint64_t low, uint64_t high) const {
    if (value >= low && value <= high) return Status();
    return reader_.Bad(fmt::format("{} {} is not in {} … {}", field, value, low, high));
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  const std::optional<CompressorOrder>& given_;
  CompressorOrder order_;
  ByteReader reader_;
  Compressor compressor_;
  // Of the header, as it says them.
  uint32_t num_layers_ = 0, num_heads_ = 0, head_dim_ = 0, hidden_size_ = 0, factor_ = 0;
  uint32_t min_seq_len_ = 0, num_blocks_ = 0;
};

// Magic and version: what says whether the rest means anything.
Status CompressorReader::ReadBegin() {
  if (IsZip(bytes_)) {
    return InvalidArgument(fmt::format(
        "{}: is a zip, as PyTorch writes (.pth), not a compressor: `varve fold convert` makes one "
        "of it",
        name_));
  }
  if (!IsCompressor(bytes_)) {
    return InvalidArgument(
        fmt::format("{}: is no compressor: it does not begin with the magic of one", name_));
  }
  uint32_t magic = 0, version = 0;
  VARVE_RETURN_IF_ERROR(reader_.Read("magic", magic));
  VARVE_RETURN_IF_ERROR(reader_.Read("version", version));
  if (version == kCompressorVersion) return Status();
  return Unimplemented(fmt::format("{}: version {} is not {}", name_, version, kCompressorVersion));
}

Status CompressorReader::ReadHeader() {
  uint16_t dtype = 0, reserved = 0;
  uint32_t metadata_bytes = 0;
  VARVE_RETURN_IF_ERROR(reader_.Read("dtype", dtype));
  VARVE_RETURN_IF_ERROR(reader_.Read("reserved", reserved));
  for (const auto& [field, value] : {std::pair{"num_layers", &num_layers_},
                                     {"num_heads", &num_heads_},
                                     {"head_dim", &head_dim_},
                                     {"hidden_size", &hidden_size_},
                                     {"compression_factor", &factor_},
                                     {"min_seq_len", &min_seq_len_},
                                     {"weight_count_per_layer", &num_blocks_},
                                     {"metadata_size_bytes", &metadata_bytes}}) {
    VARVE_RETURN_IF_ERROR(reader_.Read(field, *value));
  }
  VARVE_RETURN_IF_ERROR(CheckRange("dtype", dtype, 0, 2));
  VARVE_RETURN_IF_ERROR(CheckRange("reserved", reserved, 0, 0));
  VARVE_RETURN_IF_ERROR(CheckSizes());
  std::span<const std::byte> metadata;
  VARVE_RETURN_IF_ERROR(reader_.Take("metadata", metadata_bytes, metadata));
  VARVE_RETURN_IF_ERROR(
      ReadOrder({reinterpret_cast<const char*>(metadata.data()), metadata.size()}));
  const uint64_t least = uint64_t{num_layers_} * num_blocks_ * kCompressorBlockHeaderBytes;
  if (least > reader_.left()) {
    return reader_.Bad(fmt::format("num_layers {} of {} blocks need {} bytes and more, {} are left",
                                   num_layers_, num_blocks_, least, reader_.left()));
  }
  compressor_.dtype = static_cast<CompressorDtype>(dtype);
  compressor_.num_heads = static_cast<int>(num_heads_);
  compressor_.factor = static_cast<int>(factor_);
  compressor_.min_groups = static_cast<int>(min_seq_len_);
  return Status();
}

Status CompressorReader::CheckSizes() const {
  VARVE_RETURN_IF_ERROR(CheckRange("num_layers", num_layers_, 1, kMaxCompressorLayers));
  VARVE_RETURN_IF_ERROR(CheckRange("num_heads", num_heads_, 0, kMaxCompressorHeads));
  if (head_dim_ != 0) {
    VARVE_RETURN_IF_ERROR(CheckRange("head_dim", head_dim_, kMinCompressorDim, kMaxCompressorDim));
    if (head_dim_ % kMinCompressorDim != 0) {
      return reader_.Bad(
          fmt::format("head_dim {} is not a multiple of {}", head_dim_, kMinCompressorDim));
    }
  }
  VARVE_RETURN_IF_ERROR(
      CheckRange("compression_factor", factor_, kMinCompressorFactor, kMaxCompressorFactor));
  VARVE_RETURN_IF_ERROR(CheckRange("min_seq_len", min_seq_len_, 0, kMaxCompressorGroups));
  if (SlotsOf(num_blocks_) == 0) {
    return reader_.Bad(fmt::format(
        "weight_count_per_layer {} is not 12 or 6 (text only), nor 8, 4 or 2 of shorter networks",
        num_blocks_));
  }
  return Status();
}

// The order that the file says, else the one given, else the default.
Status CompressorReader::ReadOrder(std::string_view metadata) {
  const Result<std::optional<CompressorOrder>> said = ParseCompressorMetadata(metadata);
  if (!said.ok()) return reader_.Bad(fmt::format("metadata: {}", said.status().message()));
  if (*said && given_ && **said != *given_) {
    return InvalidArgument(fmt::format("{}: its order of blocks is \"{}\", not \"{}\"", name_,
                                       PrintCompressorMetadata(**said),
                                       PrintCompressorMetadata(*given_)));
  }
  order_ = *said ? **said : given_.value_or(CompressorOrder());
  if (!*said && !given_) {
    order_ = WithSlots(order_, static_cast<int>(SlotsOf(num_blocks_)));
  }
  const auto slots = static_cast<uint32_t>(order_.slots.size());
  for (const bool has_image : {false, true}) {
    if (num_blocks_ != slots * NumParts(has_image)) continue;
    compressor_.has_image = has_image;
    compressor_.num_slots = static_cast<int>(slots);
    return Status();
  }
  return reader_.Bad(fmt::format("weight_count_per_layer {} is not {} or {} (text only)",
                                 num_blocks_, slots * NumParts(true), slots * NumParts(false)));
}

// What the header leaves open (0) follows from the blocks.
Status CompressorReader::FillInSizes() {
  const CompressorMlp& first = compressor_.Mlp(0, CompressorPart::kTextKey);
  compressor_.head_dim = head_dim_ != 0
                             ? static_cast<int>(head_dim_)
                             : first.slots[static_cast<size_t>(compressor_.num_slots) - 1].rows;
  const uint64_t hidden = uint64_t{factor_} * static_cast<uint64_t>(compressor_.head_dim);
  if (hidden_size_ == 0 || hidden_size_ == hidden) return Status();
  return reader_.Bad(fmt::format("hidden_size {} is not compression_factor {} * head_dim {}, {}",
                                 hidden_size_, factor_, compressor_.head_dim, hidden));
}

Status CompressorReader::ReadLayer(uint32_t layer) {
  auto& mlps = compressor_.layers.emplace_back();
  for (const CompressorPart part : order_.parts) {
    if (IsImage(part) && !compressor_.has_image) continue;
    for (const int slot : order_.slots) {
      VARVE_RETURN_IF_ERROR(
          ReadBlock(fmt::format("layer {}: {}: ", layer, CompressorBlockName(part, slot)),
                    mlps[static_cast<size_t>(part)].slots[static_cast<size_t>(slot)]));
    }
  }
  return Status();
}

// Memory is taken for bytes that are there, never for what a field says.
Status CompressorReader::ReadBlock(const std::string& at, CompressorLinear& linear) {
  uint32_t rows = 0, cols = 0, has_bias = 0;
  VARVE_RETURN_IF_ERROR(reader_.Read((at + "rows").c_str(), rows));
  VARVE_RETURN_IF_ERROR(reader_.Read((at + "cols").c_str(), cols));
  VARVE_RETURN_IF_ERROR(reader_.Read((at + "has_bias").c_str(), has_bias));
  VARVE_RETURN_IF_ERROR(CheckRange(at + "rows", rows, 1, kMaxCompressorWidth));
  VARVE_RETURN_IF_ERROR(CheckRange(at + "cols", cols, 1, kMaxCompressorWidth));
  VARVE_RETURN_IF_ERROR(CheckRange(at + "has_bias", has_bias, 0, 1));
  const size_t number_bytes = CompressorDtypeBytes(compressor_.dtype);
  std::span<const std::byte> weights, bias;
  VARVE_RETURN_IF_ERROR(
      reader_.Take((at + "weights").c_str(), size_t{rows} * cols * number_bytes, weights));
  VARVE_RETURN_IF_ERROR(reader_.Take((at + "bias").c_str(), has_bias * rows * number_bytes, bias));
  linear.rows = static_cast<int>(rows);
  linear.cols = static_cast<int>(cols);
  linear.weights.assign(weights.begin(), weights.end());
  linear.bias.resize(has_bias * rows);
  for (size_t i = 0; i < linear.bias.size(); ++i) {
    uint16_t half = 0;
    if (compressor_.dtype == CompressorDtype::kF32) {
      std::memcpy(&linear.bias[i], bias.data() + i * sizeof(float), sizeof(float));
      continue;
    }
    std::memcpy(&half, bias.data() + i * sizeof(half), sizeof(half));
    linear.bias[i] = compressor_.dtype == CompressorDtype::kF16 ? F16ToF32(half) : BF16ToF32(half);
  }
  return Status();
}

}  // namespace

bool IsCompressor(std::span<const std::byte> bytes) {
  return bytes.size() >= sizeof(kCompressorMagic) &&
         std::memcmp(bytes.data(), &kCompressorMagic, sizeof(kCompressorMagic)) == 0;
}

bool IsZip(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && std::memcmp(bytes.data(), "PK\x03\x04", 4) == 0;
}

std::vector<std::byte> SerializeCompressor(const Compressor& compressor,
                                           const CompressorOrder& order) {
  const CompressorOrder own = WithSlots(order, compressor.num_slots);
  const uint32_t num_blocks =
      NumParts(compressor.has_image) * static_cast<uint32_t>(compressor.num_slots);
  // What a reader that is told nothing takes for granted need not be said.
  const bool is_default = own == WithSlots(CompressorOrder(), compressor.num_slots) &&
                          SlotsOf(num_blocks) == own.slots.size();
  return Serialize(compressor, own, compressor.num_heads,
                   is_default ? std::string() : PrintCompressorMetadata(own));
}

Result<Compressor> ParseCompressor(std::span<const std::byte> bytes, const std::string& name,
                                   const std::optional<CompressorOrder>& order) {
  return CompressorReader(bytes, name, order).Read();
}

Result<std::shared_ptr<const Compressor>> LoadCompressor(
    const std::string& path, const std::optional<CompressorOrder>& order) {
  VARVE_ASSIGN_OR_RETURN(const std::unique_ptr<const MappedFile> file, MappedFile::Open(path));
  VARVE_ASSIGN_OR_RETURN(Compressor compressor, ParseCompressor(file->bytes(), path, order));
  return std::make_shared<const Compressor>(std::move(compressor));
}

Status SaveCompressor(const Compressor& compressor, const std::string& path,
                      const CompressorOrder& order) {
  Status checked = CheckCompressor(compressor);
  if (checked.ok()) checked = CheckCompressorOrder(order);
  if (checked.ok() && static_cast<int>(order.slots.size()) < compressor.num_slots) {
    checked = InvalidArgument(fmt::format("order: {} slots, but the networks have {}",
                                          order.slots.size(), compressor.num_slots));
  }
  if (!checked.ok()) return InvalidArgument(fmt::format("{}: {}", path, checked.message()));
  return WriteFile(path, SerializeCompressor(compressor, order));
}

uint64_t CompressorHash(const Compressor& compressor) {
  const std::vector<std::byte> bytes =
      Serialize(compressor, WithSlots(CompressorOrder(), compressor.num_slots), 0, {});
  return HashBytes(bytes.data(), bytes.size());
}

}  // namespace varve

#include "runtime/torch/compressor_convert.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/half.h"
#include "base/quoted.h"
#include "runtime/torch/pth_file.h"

namespace varve {
namespace {

constexpr uint64_t kMaxNumbersPerByte = 64;

struct WeightKey {
  CompressorPart part = CompressorPart::kTextKey;
  int layer = 0;
  int slot = 0;  // 0 … 2
  bool is_bias = false;
};

// A number as Python writes it, up to `limit`.
std::optional<int> ReadNumber(std::string_view text, int limit) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < 0 || value > limit || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  return value;
}

std::string_view TakePiece(std::string_view& text) {
  const size_t dot = std::min(text.find('.'), text.size());
  const std::string_view piece = text.substr(0, dot);
  text.remove_prefix(std::min(dot + 1, text.size()));
  return piece;
}

// compress_tk.0.3.weight; nothing for other keys. `slots` are the names that may stand for the 3.
std::optional<WeightKey> ReadKey(std::string_view text, const std::vector<std::string>& slots) {
  WeightKey key;
  const std::string_view prefix = TakePiece(text);
  const std::string_view layer_text = TakePiece(text);
  const std::string_view slot_text = TakePiece(text);
  size_t part = 0;
  while (part < kCompressorParts &&
         prefix != CompressorPartName(static_cast<CompressorPart>(part))) {
    ++part;
  }
  const std::optional<int> layer = ReadNumber(layer_text, 1 << 30);
  const auto slot = std::find(slots.begin(), slots.end(), slot_text);
  if (part == kCompressorParts || !layer || slot == slots.end()) return std::nullopt;
  if (text != "weight" && text != "bias") return std::nullopt;
  key.part = static_cast<CompressorPart>(part);
  key.layer = *layer;
  key.slot = static_cast<int>(slot - slots.begin());
  key.is_bias = text == "bias";
  return key;
}

// As the dtype stores it; infinity if it has no room.
float RoundTo(CompressorDtype dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == CompressorDtype::kF16) return F16ToF32(F32ToF16(single));
  return dtype == CompressorDtype::kBF16 ? BF16ToF32(F32ToBF16(single)) : single;
}

void Store(CompressorDtype dtype, float value, std::byte* to) {
  const uint32_t whole = std::bit_cast<uint32_t>(value);
  const uint16_t half = dtype == CompressorDtype::kF16 ? F32ToF16(value) : F32ToBF16(value);
  if (dtype == CompressorDtype::kF32) {
    std::memcpy(to, &whole, sizeof(whole));
  } else {
    std::memcpy(to, &half, sizeof(half));
  }
}

class Converter {
 public:
  Converter(PthFile file, const std::string& name, uint64_t file_bytes,
            const CompressorConvertOptions& options)
      : file_(std::move(file)),
        name_(name),
        numbers_left_(file_bytes * kMaxNumbersPerByte),
        options_(options) {}

  Result<ConvertedCompressor> Run();

 private:
  Status FindStateDict();
  Status SortKeys();
  Status ReadHeader();
  Status ReadLayer(int layer);
  Status ReadLinear(int layer, CompressorPart part, int slot, CompressorLinear& linear);
  // A missing key is nothing.
  const PickleValue* Find(const std::string& key) const;
  // `dims`: 2 of a weight, 1 of a bias; sizes 1 … the widest block.
  Result<PthTensor> ReadTensor(const std::string& key, const PickleValue& value, size_t dims);
  Result<float> ReadNumber(const std::string& key, const PthTensor& tensor, int64_t at) const;
  std::string KeyOf(int layer, CompressorPart part, int slot, const char* what) const {
    return fmt::format("{}.{}.{}.{}", CompressorPartName(part), layer,
                       options_.slots[static_cast<size_t>(slot)], what);
  }
  Status Bad(const std::string& message) const {
    return InvalidArgument(fmt::format("{}: {}", name_, message));
  }

  PthFile file_;
  const std::string& name_;
  uint64_t numbers_left_;
  const CompressorConvertOptions& options_;
  std::vector<PthEntry> entries_;  // by key
  int num_layers_ = 0;
  ConvertedCompressor out_;
};

Result<ConvertedCompressor> Converter::Run() {
  VARVE_RETURN_IF_ERROR(FindStateDict());
  VARVE_RETURN_IF_ERROR(SortKeys());
  VARVE_RETURN_IF_ERROR(ReadHeader());
  for (int layer = 0; layer < num_layers_; ++layer) VARVE_RETURN_IF_ERROR(ReadLayer(layer));
  const Status checked = CheckCompressor(out_.compressor);
  if (!checked.ok()) return Bad(checked.message());
  return std::move(out_);
}

Status Converter::FindStateDict() {
  constexpr std::string_view kNested[] = {"model_state_dict", "compressor"};
  constexpr std::string_view kInner[] = {"compressor"};
  const PickleValue* dict = file_.FindDict(kNested);
  out_.state_dict = "model_state_dict.compressor";
  if (dict == nullptr) {
    dict = file_.FindDict(kInner);
    out_.state_dict = "compressor";
  }
  if (dict == nullptr) {
    dict = file_.FindDict({});
    out_.state_dict.clear();
  }
  if (dict == nullptr) {
    const PickleValue& root = file_.pickle()[file_.pickle().root];
    return Bad(fmt::format("holds {}, not a dict", PickleKindName(root.kind)));
  }
  entries_ = file_.Entries(*dict);
  return Status();
}

Status Converter::SortKeys() {
  for (const PthEntry& entry : entries_) {
    const std::optional<WeightKey> key = ReadKey(entry.key, options_.slots);
    const bool is_image = key && key->part >= CompressorPart::kImageKey;
    if (!key || (is_image && options_.text_only)) {
      out_.ignored.push_back(Printable(entry.key));
      continue;
    }
    if (key->layer >= kMaxCompressorLayers) {
      return Bad(fmt::format("{}: layer {} > {}", entry.key, key->layer, kMaxCompressorLayers - 1));
    }
    num_layers_ = std::max(num_layers_, key->layer + 1);
    if (is_image) out_.compressor.has_image = true;
  }
  if (num_layers_ > 0) return Status();
  return Bad(fmt::format(
      "has no key like {}{}; its state dict has {} keys{}",
      KeyOf(0, CompressorPart::kTextKey, 0, "weight"),
      out_.state_dict.empty() ? " and no dict compressor"
                              : fmt::format(" under {}", out_.state_dict),
      entries_.size(),
      entries_.empty() ? "" : fmt::format(", the first is {}", Printable(entries_[0].key))));
}

// What the file does not say, from the shapes of the first network.
Status Converter::ReadHeader() {
  Compressor& compressor = out_.compressor;
  compressor.dtype = options_.dtype;
  compressor.num_heads = options_.num_heads;
  compressor.min_groups = options_.min_groups;
  compressor.num_slots = static_cast<int>(options_.slots.size());
  const std::string first_key = KeyOf(0, CompressorPart::kTextKey, 0, "weight");
  const std::string last_key =
      KeyOf(0, CompressorPart::kTextKey, compressor.num_slots - 1, "weight");
  const PickleValue* first = Find(first_key);
  const PickleValue* last = Find(last_key);
  if (first == nullptr) return Bad(fmt::format("{} is missing", first_key));
  if (last == nullptr) return Bad(fmt::format("{} is missing", last_key));
  VARVE_ASSIGN_OR_RETURN(const auto first_weight, ReadTensor(first_key, *first, 2));
  VARVE_ASSIGN_OR_RETURN(const auto last_weight, ReadTensor(last_key, *last, 2));
  const int inputs = static_cast<int>(first_weight.shape[1]);
  const int outputs = static_cast<int>(last_weight.shape[0]);
  compressor.head_dim = options_.head_dim == 0 ? outputs : options_.head_dim;
  if (compressor.head_dim != outputs) {
    return Bad(fmt::format("head_dim {} is not {}, the outputs of {}", compressor.head_dim, outputs,
                           last_key));
  }
  compressor.factor = options_.factor == 0 ? inputs / outputs : options_.factor;
  if (int64_t{compressor.factor} * outputs != inputs) {
    return Bad(fmt::format("compression factor {} * head_dim {} is not {}, the inputs of {}",
                           compressor.factor, outputs, inputs, first_key));
  }
  return Status();
}

Status Converter::ReadLayer(int layer) {
  auto& mlps = out_.compressor.layers.emplace_back();
  const int num_parts = out_.compressor.has_image ? kCompressorParts : 2;
  for (int i = 0; i < num_parts; ++i) {
    for (int slot = 0; slot < out_.compressor.num_slots; ++slot) {
      VARVE_RETURN_IF_ERROR(
          ReadLinear(layer, static_cast<CompressorPart>(i), slot,
                     mlps[static_cast<size_t>(i)].slots[static_cast<size_t>(slot)]));
    }
  }
  return Status();
}

Status Converter::ReadLinear(int layer, CompressorPart part, int slot, CompressorLinear& linear) {
  const std::string weight_key = KeyOf(layer, part, slot, "weight");
  const std::string bias_key = KeyOf(layer, part, slot, "bias");
  const PickleValue* weight_value = Find(weight_key);
  if (weight_value == nullptr) return Bad(fmt::format("{} is missing", weight_key));
  VARVE_ASSIGN_OR_RETURN(const auto weight, ReadTensor(weight_key, *weight_value, 2));
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  const auto count = static_cast<uint64_t>(rows * cols);
  if (count > numbers_left_) {
    return Bad(fmt::format("{}: tensors share storages: more than {} numbers per byte of the file",
                           weight_key, kMaxNumbersPerByte));
  }
  numbers_left_ -= count;
  const size_t number_bytes = CompressorDtypeBytes(options_.dtype);
  linear.rows = static_cast<int>(rows);
  linear.cols = static_cast<int>(cols);
  linear.weights.resize(count * number_bytes);
  std::byte* to = linear.weights.data();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col, to += number_bytes) {
      const int64_t at = weight.offset + row * weight.strides[0] + col * weight.strides[1];
      VARVE_ASSIGN_OR_RETURN(const float value, ReadNumber(weight_key, weight, at));
      Store(options_.dtype, value, to);
    }
  }
  const PickleValue* bias_value = Find(bias_key);
  if (bias_value == nullptr) return Status();
  VARVE_ASSIGN_OR_RETURN(const auto bias, ReadTensor(bias_key, *bias_value, 1));
  if (bias.shape[0] != rows) {
    return Bad(fmt::format("{} has {} numbers, not {} as {} has rows", bias_key, bias.shape[0],
                           rows, weight_key));
  }
  for (int64_t row = 0; row < rows; ++row) {
    VARVE_ASSIGN_OR_RETURN(const float value,
                           ReadNumber(bias_key, bias, bias.offset + row * bias.strides[0]));
    linear.bias.push_back(value);
  }
  return Status();
}

const PickleValue* Converter::Find(const std::string& key) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), PthEntry{key, 0});
  return at != entries_.end() && at->key == key ? &file_.pickle()[at->value] : nullptr;
}

Result<PthTensor> Converter::ReadTensor(const std::string& key, const PickleValue& value,
                                        size_t dims) {
  Result<PthTensor> tensor = file_.Tensor(value);
  if (!tensor.ok()) {
    // "FILE: what" becomes "FILE: KEY: what".
    return Status(
        tensor.status().code(),
        fmt::format("{}: {}{}", name_, key, tensor.status().message().substr(name_.size())));
  }
  if (tensor->shape.size() != dims) {
    return Bad(fmt::format("{} has {} dimensions, not {}", key, tensor->shape.size(), dims));
  }
  for (const int64_t size : tensor->shape) {
    if (size >= 1 && size <= kMaxCompressorWidth) continue;
    return Bad(fmt::format("{}: size {} is not in 1 … {}", key, size, kMaxCompressorWidth));
  }
  return tensor;
}

Result<float> Converter::ReadNumber(const std::string& key, const PthTensor& tensor,
                                    int64_t at) const {
  const double value = tensor.At(at);
  const float rounded = RoundTo(options_.dtype, value);
  if (std::isfinite(rounded)) return rounded;
  if (!std::isfinite(value)) return Bad(fmt::format("{} holds {}, not finite", key, value));
  return Bad(fmt::format("{} holds {}, which {} has no room for", key, value,
                         CompressorDtypeName(options_.dtype)));
}

}  // namespace

Result<ConvertedCompressor> ConvertPthCompressor(std::span<const std::byte> bytes,
                                                 const std::string& name,
                                                 const CompressorConvertOptions& options) {
  if (bytes.size() >= 4 && IsCompressor(bytes)) {
    return InvalidArgument(fmt::format("{}: is a compressor already, not a .pth", name));
  }
  if (options.slots.empty() || options.slots.size() > kMaxCompressorSlots) {
    return InvalidArgument(
        fmt::format("{} slots, not 1 … {}", options.slots.size(), kMaxCompressorSlots));
  }
  VARVE_ASSIGN_OR_RETURN(PthFile file, PthFile::Open(bytes, name));
  return Converter(std::move(file), name, bytes.size(), options).Run();
}

}  // namespace varve

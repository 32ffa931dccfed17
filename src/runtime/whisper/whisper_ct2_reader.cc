// Reads CTranslate2's model.bin of a Whisper model, as faster-whisper has it.
//
//   u32 version (6), string "WhisperSpec", u32 revision, u32 variables; per variable: string name,
//   u8 rank, u32 dims[rank], u8 dtype, u32 bytes, data; u32 aliases; per alias: string alias,
//   string variable. A string is u16 bytes with its NUL, then the bytes.
//
// Names are mapped to OpenAI's (whisper_ct2_names.h); sizes come from shapes. K's bias, which
// Whisper has not, is zeros there.

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "base/quoted.h"
#include "runtime/whisper/whisper_collector.h"
#include "runtime/whisper/whisper_ct2_names.h"
#include "runtime/whisper/whisper_tensors.h"

namespace varve {
namespace {

constexpr uint32_t kVersion = 6;
constexpr std::string_view kSpec = "WhisperSpec";
constexpr uint32_t kMaxVariables = 1 << 14;
constexpr uint8_t kMaxRank = 4;
// Of each byte, on average: many aliases of one variable must not make a small file a model of
// gigabytes. Whisper's models have one alias, which is no tensor.
constexpr size_t kMaxCopies = 2;

enum class Ct2Dtype : uint8_t { kF32, kI8, kI16, kI32, kF16, kBF16 };
constexpr std::array<size_t, 6> kDtypeBytes = {4, 1, 2, 4, 2, 2};

struct Variable {
  std::vector<int64_t> dims;
  Ct2Dtype dtype = Ct2Dtype::kF32;
  std::span<const std::byte> data;
};

// Settings that every Whisper model has, with the one value that this program computes with.
struct Setting {
  std::string_view name;
  int64_t value;
};
constexpr Setting kSettings[] = {
    {"encoder/activation", 3},  // GELU
    {"decoder/activation", 3},       {"encoder/pre_norm", 1},
    {"decoder/pre_norm", 1},         {"decoder/alibi", 0},
    {"decoder/scale_embeddings", 0}, {"decoder/start_from_zero_embedding", 0},
};
// What decoding does not need: which heads follow the sound (for times of words).
constexpr std::string_view kIgnored[] = {"decoder/alignment_heads", "decoder/alignment_layer",
                                         "encoder/num_heads", "decoder/num_heads"};
constexpr const char* kProjection = "decoder/projection/weight";
constexpr const char* kEmbeddings = "decoder/embeddings/weight";

class Ct2Reader {
 public:
  Ct2Reader(std::span<const std::byte> bytes, const std::string& name)
      : name_(name), reader_(name.c_str(), bytes), bytes_left_(kMaxCopies * bytes.size()) {}

  Result<WhisperTensors> Run() {
    VARVE_RETURN_IF_ERROR(ReadHeader());
    VARVE_RETURN_IF_ERROR(ReadVariables());
    VARVE_RETURN_IF_ERROR(ReadAliases());
    VARVE_RETURN_IF_ERROR(reader_.Finish());
    VARVE_RETURN_IF_ERROR(CheckSettings());
    VARVE_ASSIGN_OR_RETURN(const WhisperConfig config, ConfigFromShapes());
    VARVE_ASSIGN_OR_RETURN(WhisperCollector collector, WhisperCollector::Create(config, name_));
    for (const WhisperTensorShape& shape : collector.shapes()) {
      VARVE_RETURN_IF_ERROR(AddTensor(shape, collector));
    }
    VARVE_RETURN_IF_ERROR(CheckRest());
    return std::move(collector).Finish();
  }

 private:
  Status ReadHeader();
  Status ReadString(const char* field, std::string_view& text);
  Status ReadVariables();
  Status ReadVariable();
  Status ReadAliases();
  Status CheckSettings() const;
  Result<WhisperConfig> ConfigFromShapes() const;
  Result<int> Heads(const char* stack, int64_t width) const;
  int CountLayers(std::string_view stack) const;
  Status AddTensor(const WhisperTensorShape& shape, WhisperCollector& collector);
  // What no tensor has taken must be known: K's biases, settings, the projection.
  Status CheckRest() const;

  const Variable* Find(std::string_view name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : &found->second;
  }
  // Of a variable with one value; nothing if it is no integer.
  static std::optional<int64_t> Integer(const Variable& variable);
  Status Bad(const std::string& message) const { return reader_.Bad(message); }

  const std::string& name_;
  ByteReader reader_;
  std::map<std::string_view, Variable> variables_;
  std::set<std::string, std::less<>> used_;
  size_t bytes_left_;  // that tensors may still take
};

Status Ct2Reader::ReadHeader() {
  uint32_t version = 0, revision = 0;
  std::string_view spec;
  VARVE_RETURN_IF_ERROR(reader_.Read("version", version));
  if (version != kVersion) {
    return InvalidArgument(
        fmt::format("{}: version {} is not {}, the one of CTranslate2's files that is read here",
                    name_, version, kVersion));
  }
  VARVE_RETURN_IF_ERROR(ReadString("spec", spec));
  if (spec != kSpec) {
    return InvalidArgument(
        fmt::format("{}: is a {} of CTranslate2, not a {}", name_, Quoted(spec), kSpec));
  }
  return reader_.Read("revision", revision);
}

Status Ct2Reader::ReadString(const char* field, std::string_view& text) {
  uint16_t size = 0;
  std::span<const std::byte> bytes;
  VARVE_RETURN_IF_ERROR(reader_.Read(field, size));
  VARVE_RETURN_IF_ERROR(reader_.Take(field, size, bytes));
  if (size == 0 || bytes.back() != std::byte{0}) {
    return Bad(fmt::format("{} of {} bytes does not end in NUL", field, size));
  }
  text = {reinterpret_cast<const char*>(bytes.data()), bytes.size() - 1};
  return Status();
}

Status Ct2Reader::ReadVariables() {
  uint32_t count = 0;
  VARVE_RETURN_IF_ERROR(reader_.Read("number of variables", count));
  if (count > kMaxVariables) {
    return Bad(fmt::format("number of variables {} > {}", count, kMaxVariables));
  }
  for (uint32_t i = 0; i < count; ++i) VARVE_RETURN_IF_ERROR(ReadVariable());
  return Status();
}

Status Ct2Reader::ReadVariable() {
  std::string_view name;
  uint8_t rank = 0, dtype = 0;
  uint32_t bytes = 0;
  Variable variable;
  VARVE_RETURN_IF_ERROR(ReadString("name of a variable", name));
  VARVE_RETURN_IF_ERROR(reader_.Read("rank of a variable", rank));
  if (rank > kMaxRank) {
    return Bad(fmt::format("variable {}: rank {} > {}", Printable(name), rank, kMaxRank));
  }
  uint64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    uint32_t size = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("dimension of a variable", size));
    variable.dims.push_back(size);
    if (__builtin_mul_overflow(count, size, &count)) {
      return Bad(fmt::format("variable {}: dims {} overflow", Printable(name),
                             WhisperDimsText(variable.dims)));
    }
  }
  VARVE_RETURN_IF_ERROR(reader_.Read("dtype of a variable", dtype));
  VARVE_RETURN_IF_ERROR(reader_.Read("bytes of a variable", bytes));
  if (dtype >= kDtypeBytes.size()) {
    return Bad(
        fmt::format("variable {}: dtype {} > {}", Printable(name), dtype, kDtypeBytes.size() - 1));
  }
  variable.dtype = static_cast<Ct2Dtype>(dtype);
  // Division, because the product may overflow.
  if (bytes % kDtypeBytes[dtype] != 0 || bytes / kDtypeBytes[dtype] != count) {
    return Bad(fmt::format("variable {}: {} bytes are not {} values of {}", Printable(name), bytes,
                           count, kDtypeBytes[dtype]));
  }
  VARVE_RETURN_IF_ERROR(reader_.Take("data of a variable", bytes, variable.data));
  if (!variables_.emplace(name, std::move(variable)).second) {
    return Bad(fmt::format("variable {} comes twice", Printable(name)));
  }
  return Status();
}

Status Ct2Reader::ReadAliases() {
  uint32_t count = 0;
  VARVE_RETURN_IF_ERROR(reader_.Read("number of aliases", count));
  if (count > kMaxVariables) {
    return Bad(fmt::format("number of aliases {} > {}", count, kMaxVariables));
  }
  for (uint32_t i = 0; i < count; ++i) {
    std::string_view alias, name;
    VARVE_RETURN_IF_ERROR(ReadString("alias", alias));
    VARVE_RETURN_IF_ERROR(ReadString("variable of an alias", name));
    const Variable* variable = Find(name);
    if (variable == nullptr) {
      return Bad(
          fmt::format("alias {} of {}, which is no variable", Printable(alias), Printable(name)));
    }
    if (!variables_.emplace(alias, *variable).second) {
      return Bad(fmt::format("alias {} is a variable, too", Printable(alias)));
    }
  }
  return Status();
}

std::optional<int64_t> Ct2Reader::Integer(const Variable& variable) {
  const auto load = [&]<typename T>(T value) -> std::optional<int64_t> {
    if (variable.data.size() != sizeof(T)) return std::nullopt;
    std::memcpy(&value, variable.data.data(), sizeof(T));
    return value;
  };
  switch (variable.dtype) {
    case Ct2Dtype::kI8:
      return load(int8_t{});
    case Ct2Dtype::kI16:
      return load(int16_t{});
    case Ct2Dtype::kI32:
      return load(int32_t{});
    default:
      return std::nullopt;
  }
}

Status Ct2Reader::CheckSettings() const {
  for (const Setting& setting : kSettings) {
    const Variable* variable = Find(setting.name);
    if (variable == nullptr) continue;  // Whisper's, then
    const std::optional<int64_t> value = Integer(*variable);
    if (value == setting.value) continue;
    return Bad(fmt::format("{} {} is not {}, as Whisper has it", setting.name,
                           value ? fmt::format("{}", *value) : "without a number", setting.value));
  }
  return Status();
}

int Ct2Reader::CountLayers(std::string_view stack) const {
  int layers = 0;
  while (Find(fmt::format("{}/layer_{}/self_attention/layer_norm/gamma", stack, layers)) !=
         nullptr) {
    ++layers;
  }
  return layers;
}

// Files of old do not say; all of OpenAI's models have heads of 64.
Result<int> Ct2Reader::Heads(const char* stack, int64_t width) const {
  const Variable* variable = Find(fmt::format("{}/num_heads", stack));
  if (variable == nullptr) return static_cast<int>(width / 64);
  const std::optional<int64_t> value = Integer(*variable);
  if (value.has_value()) return static_cast<int>(*value);
  return Bad(fmt::format("{}/num_heads is no integer", stack));
}

Result<WhisperConfig> Ct2Reader::ConfigFromShapes() const {
  constexpr std::pair<const char*, size_t> kRanks[] = {
      {kEmbeddings, 2},
      {"encoder/conv1/weight", 3},
      {"encoder/position_encodings/encodings", 2},
      {"decoder/position_encodings/encodings", 2},
  };
  // Sizes that no config takes are named there; here they only have to fit.
  const auto size = [](int64_t value) {
    return static_cast<int>(std::min<int64_t>(value, 1 << 30));
  };
  for (const auto& [name, rank] : kRanks) {
    const Variable* variable = Find(name);
    if (variable == nullptr) return Bad(fmt::format("variable {} is missing", name));
    if (variable->dims.size() != rank) {
      return Bad(fmt::format("variable {}: rank {} is not {}", name, variable->dims.size(), rank));
    }
  }
  const Variable& embeddings = *Find(kEmbeddings);
  const Variable& conv = *Find("encoder/conv1/weight");
  WhisperConfig config;
  config.vocab = size(embeddings.dims[0]);
  config.text_state = size(embeddings.dims[1]);
  config.audio_state = size(conv.dims[0]);
  config.mels = size(conv.dims[1]);
  config.audio_ctx = size(Find("encoder/position_encodings/encodings")->dims[0]);
  config.text_ctx = size(Find("decoder/position_encodings/encodings")->dims[0]);
  config.audio_layers = CountLayers("encoder");
  config.text_layers = CountLayers("decoder");
  VARVE_ASSIGN_OR_RETURN(config.audio_heads, Heads("encoder", config.audio_state));
  VARVE_ASSIGN_OR_RETURN(config.text_heads, Heads("decoder", config.text_state));
  return config;
}

Status Ct2Reader::AddTensor(const WhisperTensorShape& shape, WhisperCollector& collector) {
  const Ct2Source source = Ct2SourceOf(shape.name);
  const Variable* variable = Find(source.variable);
  if (variable == nullptr) {
    return Bad(fmt::format("variable {} is missing", source.variable));
  }
  used_.insert(source.variable);
  WeightType type = WeightType::kF32;
  if (variable->dtype == Ct2Dtype::kF16) {
    type = WeightType::kF16;
  } else if (variable->dtype == Ct2Dtype::kBF16) {
    type = WeightType::kBF16;
  } else if (variable->dtype != Ct2Dtype::kF32) {
    return Unimplemented(fmt::format(
        "{}: variable {} holds integers of CTranslate2, which are not read here; convert the model "
        "with float16 weights",
        name_, source.variable));
  }
  std::vector<int64_t> dims = variable->dims;
  if (dims.empty() || dims[0] % source.parts != 0) {
    return Bad(fmt::format("variable {}: shape {} is not {} parts", source.variable,
                           WhisperDimsText(dims), source.parts));
  }
  dims[0] /= source.parts;
  VARVE_ASSIGN_OR_RETURN(const size_t bytes, collector.Expect(shape.name, type, dims));
  if (bytes > bytes_left_) {
    return Bad(fmt::format("aliases make tensors of more than {} times the file", kMaxCopies));
  }
  bytes_left_ -= bytes;
  if (shape.name.ends_with(".value.bias")) {
    const auto key_bias =
        variable->data.subspan(static_cast<size_t>(source.part - 1) * bytes, bytes);
    if (!std::ranges::all_of(key_bias, [](std::byte b) { return b == std::byte{0}; })) {
      return Bad(fmt::format("variable {}: the bias of K is not zero, and Whisper has none",
                             source.variable));
    }
  }
  return collector.Add(shape.name, type,
                       variable->data.subspan(static_cast<size_t>(source.part) * bytes, bytes));
}

Status Ct2Reader::CheckRest() const {
  for (const auto& [name, variable] : variables_) {
    if (name == kProjection) {
      if (std::ranges::equal(variable.data, Find(kEmbeddings)->data)) continue;
      return Bad(fmt::format("{} is not {}: Whisper has one matrix for both", name, kEmbeddings));
    }
    if (used_.contains(name) || std::ranges::count(kIgnored, name) > 0 ||
        std::ranges::find(kSettings, name, &Setting::name) != std::end(kSettings)) {
      continue;
    }
    return Bad(fmt::format("variable {} is no part of a Whisper model", Printable(name)));
  }
  return Status();
}

}  // namespace

Result<WhisperTensors> ReadWhisperCt2(std::span<const std::byte> bytes, const std::string& name) {
  return Ct2Reader(bytes, name).Run();
}

}  // namespace varve

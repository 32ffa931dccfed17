// Reads the Whisper files of ggml: ggml-tiny.bin and its like.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/whisper/whisper_collector.h"
#include "runtime/whisper/whisper_ggml_format.h"
#include "runtime/whisper/whisper_tensors.h"

namespace varve {
namespace {

constexpr int32_t kMaxDims = 4;

class GgmlReader {
 public:
  GgmlReader(std::span<const std::byte> bytes, const std::string& name)
      : name_(name), reader_(name.c_str(), bytes) {}

  Result<WhisperTensors> Run() {
    WhisperConfig config;
    VARVE_RETURN_IF_ERROR(ReadHeader(config));
    VARVE_ASSIGN_OR_RETURN(WhisperCollector collector, WhisperCollector::Create(config, name_));
    VARVE_RETURN_IF_ERROR(SkipFilters(config));
    VARVE_ASSIGN_OR_RETURN(std::vector<std::string> tokens, ReadTokens(config));
    while (reader_.left() > 0) VARVE_RETURN_IF_ERROR(ReadTensor(collector));
    VARVE_ASSIGN_OR_RETURN(WhisperTensors model, std::move(collector).Finish());
    model.tokens = std::move(tokens);
    return model;
  }

 private:
  Status ReadHeader(WhisperConfig& config) {
    uint32_t magic = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("magic", magic));
    if (magic != kWhisperGgmlMagic) {
      return InvalidArgument(fmt::format("{}: is no Whisper file of ggml: magic {:08x}, not {:08x}",
                                         name_, magic, kWhisperGgmlMagic));
    }
    for (const WhisperConfigField& field : WhisperConfigFields()) {
      VARVE_RETURN_IF_ERROR(reader_.Read(field.name, config.*field.value));
    }
    int32_t ftype = 0;  // says nothing that the tensors do not say
    return reader_.Read("ftype", ftype);
  }

  // The filters follow from n_mels; a file cannot have others.
  Status SkipFilters(const WhisperConfig& config) {
    int32_t mels = 0, bins = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("filters' n_mel", mels));
    VARVE_RETURN_IF_ERROR(reader_.Read("filters' n_fft", bins));
    if (mels != config.mels || bins != kWhisperFftBins) {
      return reader_.Bad(fmt::format("filters of {} x {} values, not {} x {}", mels, bins,
                                     config.mels, kWhisperFftBins));
    }
    std::span<const std::byte> filters;
    return reader_.Take("filters", sizeof(float) * static_cast<size_t>(mels) * kWhisperFftBins,
                        filters);
  }

  Result<std::vector<std::string>> ReadTokens(const WhisperConfig& config) {
    int32_t count = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("number of tokens", count));
    if (count < 0 || count > config.vocab) {
      return reader_.Bad(
          fmt::format("number of tokens {} is not in 0 … n_vocab {}", count, config.vocab));
    }
    std::vector<std::string> tokens;
    for (int32_t id = 0; id < count; ++id) {
      uint32_t size = 0;
      VARVE_RETURN_IF_ERROR(reader_.Read("size of a token", size));
      if (size > kMaxWhisperTokenBytes) {
        return reader_.Bad(
            fmt::format("token {} of {} bytes > {}", id, size, kMaxWhisperTokenBytes));
      }
      std::span<const std::byte> text;
      VARVE_RETURN_IF_ERROR(reader_.Take("token", size, text));
      tokens.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
    }
    return tokens;
  }

  Status ReadTensor(WhisperCollector& collector) {
    int32_t num_dims = 0, name_bytes = 0, number = 0;
    VARVE_RETURN_IF_ERROR(reader_.Read("n_dims of a tensor", num_dims));
    VARVE_RETURN_IF_ERROR(reader_.Read("size of a tensor's name", name_bytes));
    VARVE_RETURN_IF_ERROR(reader_.Read("type of a tensor", number));
    if (num_dims < 1 || num_dims > kMaxDims) {
      return reader_.Bad(fmt::format("n_dims {} of a tensor is not in 1 … {}", num_dims, kMaxDims));
    }
    if (name_bytes < 1 || name_bytes > kMaxWhisperNameBytes) {
      return reader_.Bad(
          fmt::format("a tensor's name of {} bytes, not 1 … {}", name_bytes, kMaxWhisperNameBytes));
    }
    std::vector<int64_t> dims(static_cast<size_t>(num_dims));
    for (int64_t& size : dims) {
      int32_t read = 0;
      VARVE_RETURN_IF_ERROR(reader_.Read("dimension of a tensor", read));
      size = read;
    }
    std::reverse(dims.begin(), dims.end());  // innermost first in the file
    std::span<const std::byte> text, data;
    VARVE_RETURN_IF_ERROR(reader_.Take("a tensor's name", static_cast<size_t>(name_bytes), text));
    const std::string_view tensor(reinterpret_cast<const char*>(text.data()), text.size());
    const std::optional<WeightType> type = WeightTypeFromGgml(static_cast<uint32_t>(number));
    if (!type.has_value()) {
      return Unimplemented(fmt::format("{}: tensor {}: type {} ({}) is not read here", name_,
                                       Printable(tensor), number,
                                       GgmlTypeName(static_cast<uint32_t>(number))));
    }
    VARVE_ASSIGN_OR_RETURN(const size_t size, collector.Expect(tensor, *type, dims));
    if (size > reader_.left()) {
      return reader_.Bad(
          fmt::format("tensor {} needs {} bytes, {} are left", tensor, size, reader_.left()));
    }
    VARVE_RETURN_IF_ERROR(reader_.Take("tensor", size, data));
    return collector.Add(tensor, *type, data);
  }

  const std::string& name_;
  ByteReader reader_;
};

}  // namespace

Result<WhisperTensors> ReadWhisperGgml(std::span<const std::byte> bytes, const std::string& name) {
  return GgmlReader(bytes, name).Run();
}

}  // namespace varve

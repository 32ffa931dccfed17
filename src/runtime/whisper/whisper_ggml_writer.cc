// Writes the Whisper files of ggml: what whisper_ggml_reader.cc and whisper.cpp read.

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/byte_io.h"
#include "runtime/audio/log_mel.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/kernels/weights_encode.h"
#include "runtime/whisper/whisper_ggml_format.h"
#include "runtime/whisper/whisper_tensors.h"
#include "runtime/whisper/whisper_tokens.h"

namespace varve {
namespace {

// What ggml calls a file by its matrices; nothing for types that no Whisper file has.
std::optional<int32_t> FileTypeOf(WeightType type) {
  constexpr int32_t kIntegers = kGgmlQuantizationVersion * kGgmlQuantizationFactor;
  switch (type) {
    case WeightType::kF32:
      return 0;
    case WeightType::kF16:
      return 1;
    case WeightType::kQ4_0:
      return kIntegers + 2;
    case WeightType::kQ4_1:
      return kIntegers + 3;
    case WeightType::kQ8_0:
      return kIntegers + 7;
    case WeightType::kQ5_0:
      return kIntegers + 8;
    case WeightType::kQ5_1:
      return kIntegers + 9;
    default:
      return std::nullopt;
  }
}

class GgmlWriter {
 public:
  GgmlWriter(const WhisperTensors& model, WeightType type, const std::string& path,
             const WhisperWriteOptions& options)
      : model_(model), type_(type), path_(path), options_(options) {}

  Status Run() {
    const std::optional<int32_t> file_type = FileTypeOf(type_);
    if (!file_type.has_value()) {
      return Bad(fmt::format("{} is no type of Whisper files", InfoOf(type_).name));
    }
    const std::vector<WhisperTensorShape> shapes = WhisperTensorShapes(model_.config);
    for (const WhisperTensorShape& shape : shapes) VARVE_RETURN_IF_ERROR(CheckTensor(shape));
    VARVE_ASSIGN_OR_RETURN(file_, AtomicFile::Create(path_, options_.file_ops));
    VARVE_RETURN_IF_ERROR(WriteHeader(*file_type));
    for (const WhisperTensorShape& shape : shapes) VARVE_RETURN_IF_ERROR(WriteTensor(shape));
    return file_->Commit();
  }

 private:
  WeightType TargetOf(const WhisperTensorShape& shape) const {
    if (!shape.is_factor) return WeightType::kF32;
    const bool is_convolution = shape.dims.size() == 3;
    return is_convolution && type_ != WeightType::kF32 ? WeightType::kF16 : type_;
  }

  // Before anything is written.
  Status CheckTensor(const WhisperTensorShape& shape) {
    const auto found = model_.tensors.find(shape.name);
    if (found == model_.tensors.end()) return Bad(fmt::format("tensor {} is missing", shape.name));
    if (found->second.dims != shape.dims) {
      return Bad(fmt::format("tensor {} has another shape than the config says", shape.name));
    }
    const int block_values = InfoOf(TargetOf(shape)).block_values;
    if (shape.dims.back() % block_values != 0) {
      return Bad(fmt::format("tensor {}: rows of {} values are no blocks of {} ({})", shape.name,
                             shape.dims.back(), block_values, InfoOf(type_).name));
    }
    total_values_ += found->second.values();
    return Status();
  }

  Status WriteHeader(int32_t file_type) {
    std::vector<std::byte> out;
    AppendNumber(out, kWhisperGgmlMagic);
    for (const WhisperConfigField& field : WhisperConfigFields()) {
      AppendNumber(out, int32_t{model_.config.*field.value});
    }
    AppendNumber(out, file_type);
    AppendNumber(out, int32_t{model_.config.mels});
    AppendNumber(out, kWhisperFftBins);
    const std::vector<float> filters = MelFilters(model_.config.mels);
    AppendBytes(out, std::as_bytes(std::span(filters)));
    VARVE_ASSIGN_OR_RETURN(const std::vector<std::string> tokens, Tokens());
    AppendNumber(out, static_cast<int32_t>(tokens.size()));
    for (const std::string& token : tokens) {
      AppendNumber(out, static_cast<uint32_t>(token.size()));
      AppendBytes(out, std::as_bytes(std::span(token)));
    }
    return file_->Append(out);
  }

  // Of a model whose file had none, those of the program; a model of a test that is too small for
  // them has none.
  Result<std::vector<std::string>> Tokens() const {
    constexpr int kMinVocab = 51864;
    if (!model_.tokens.empty() || model_.config.vocab < kMinVocab) return model_.tokens;
    return WhisperTokens(model_.config.multilingual());
  }

  Status WriteTensor(const WhisperTensorShape& shape) {
    const WeightType target = TargetOf(shape);
    std::vector<int64_t> dims = shape.dims;
    // whisper.cpp adds these to [n, frames].
    if (shape.name.starts_with("encoder.conv") && dims.size() == 1) dims.push_back(1);
    std::vector<std::byte> out;
    AppendNumber(out, static_cast<int32_t>(dims.size()));
    AppendNumber(out, static_cast<int32_t>(shape.name.size()));
    AppendNumber(out, static_cast<int32_t>(GgmlNumberOf(target)));
    for (size_t i = dims.size(); i-- > 0;) AppendNumber(out, static_cast<int32_t>(dims[i]));
    AppendBytes(out, std::as_bytes(std::span(shape.name)));
    VARVE_RETURN_IF_ERROR(file_->Append(out));
    return WriteValues(shape.name, target);
  }

  // A run of rows at a time: models have gigabytes.
  Status WriteValues(const std::string& name, WeightType target) {
    constexpr int64_t kRunValues = 1 << 20;
    const WhisperTensor& tensor = model_.tensors.at(name);
    const WeightMatrix from = tensor.matrix();
    const WeightMatrix to = {target, from.rows, from.cols, nullptr};
    const int64_t run_rows = std::max<int64_t>(1, kRunValues / from.cols);
    std::vector<float> values;
    std::vector<std::byte> blocks;
    for (int64_t row = 0; row < from.rows; row += run_rows) {
      const int64_t rows = std::min(run_rows, from.rows - row);
      const auto count = static_cast<size_t>(rows * from.cols);
      if (from.type == target) {
        const size_t bytes = static_cast<size_t>(rows) * from.row_bytes();
        VARVE_RETURN_IF_ERROR(file_->Append({from.row(row), bytes}));
      } else {
        values.resize(count);
        blocks.resize(static_cast<size_t>(rows) * to.row_bytes());
        ActiveWeightKernels().decode[static_cast<int>(from.type)](
            from.row(row), static_cast<int64_t>(count), values.data());
        if (!EncodeWeights(target, values.data(), static_cast<int64_t>(count), blocks.data())) {
          return Bad(fmt::format("tensor {}: {} has no room for its values; choose another type",
                                 name, InfoOf(target).name));
        }
        VARVE_RETURN_IF_ERROR(file_->Append(blocks));
      }
      done_values_ += static_cast<int64_t>(count);
      if (options_.progress) {
        options_.progress(static_cast<double>(done_values_) / static_cast<double>(total_values_));
      }
    }
    return Status();
  }

  Status Bad(const std::string& message) const {
    return InvalidArgument(fmt::format("{}: {}", path_, message));
  }

  const WhisperTensors& model_;
  WeightType type_;
  const std::string& path_;
  const WhisperWriteOptions& options_;
  std::unique_ptr<AtomicFile> file_;
  int64_t total_values_ = 0;
  int64_t done_values_ = 0;
};

}  // namespace

Status WriteWhisperGgml(const WhisperTensors& model, WeightType type, const std::string& path,
                        const WhisperWriteOptions& options) {
  return GgmlWriter(model, type, path, options).Run();
}

}  // namespace varve

#include "tests/whisper_files.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/byte_io.h"
#include "runtime/whisper/whisper_ct2_names.h"
#include "tests/pth_testing.h"

namespace varve {
namespace {

std::vector<std::byte> ValuesOf(const WhisperTensor& tensor) {
  if (tensor.type == WeightType::kF16) return {tensor.data, tensor.data + tensor.bytes()};
  std::vector<std::byte> values(static_cast<size_t>(tensor.values()) * sizeof(float));
  AvailableWeightKernels()[0]->decode[static_cast<int>(tensor.type)](
      tensor.data, tensor.values(), reinterpret_cast<float*>(values.data()));
  return values;
}

template <typename Part>
Part& FindByName(std::vector<Part>& parts, std::string_view name) {
  const auto found = std::ranges::find(parts, name, &Part::name);
  if (found == parts.end()) std::abort();  // the test's own mistake
  return *found;
}

void AppendString(std::vector<std::byte>& out, std::string_view text) {
  AppendNumber(out, static_cast<uint16_t>(text.size() + 1));
  AppendBytes(out, std::as_bytes(std::span(text.data(), text.size())));
  out.push_back(std::byte{0});
}

}  // namespace

WhisperPtParts::WhisperPtParts(const WhisperTensors& model) {
  for (const WhisperConfigField& field : WhisperConfigFields()) {
    dims.emplace_back(field.name, model.config.*field.value);
  }
  for (const auto& [name, tensor] : model.tensors) {
    Tensor part = {name,        tensor.type == WeightType::kF16 ? "HalfStorage" : "FloatStorage",
                   tensor.dims, std::vector<int64_t>(tensor.dims.size(), 1),
                   0,           ValuesOf(tensor)};
    for (size_t i = tensor.dims.size() - 1; i-- > 0;) {
      part.strides[i] = part.strides[i + 1] * tensor.dims[i + 1];
    }
    tensors.push_back(std::move(part));
  }
}

WhisperPtParts::Tensor& WhisperPtParts::Find(std::string_view name) {
  return FindByName(tensors, name);
}

std::vector<std::byte> WhisperPtParts::Build() const {
  PickleBuilder pickle;
  std::vector<std::pair<std::string, std::vector<std::byte>>> storages;
  pickle.Op("}").Mark();
  pickle.Text(dims_name).Op("}").Mark();
  for (const auto& [name, value] : dims) pickle.Text(name).Int(value);
  pickle.Op("u").Text(state_name).Op("}").Mark();
  for (const Tensor& tensor : tensors) {
    const std::string key = std::to_string(storages.size());
    const size_t number_bytes = tensor.storage_type == "HalfStorage"     ? 2
                                : tensor.storage_type == "DoubleStorage" ? 8
                                                                         : 4;
    pickle.Text(tensor.name);
    pickle.Tensor(tensor.storage_type, key,
                  static_cast<int64_t>(tensor.storage.size() / number_bytes), tensor.offset,
                  tensor.shape, tensor.strides);
    storages.emplace_back(key, tensor.storage);
  }
  pickle.Op("u").Op("u");
  return BuildPth(pickle.Build(), storages);
}

WhisperCt2Parts::WhisperCt2Parts(const WhisperTensors& model) {
  const auto add = [&](std::string name, uint8_t dtype, const auto& value) {
    std::vector<std::byte> data(sizeof(value));
    std::memcpy(data.data(), &value, sizeof(value));
    variables.push_back({std::move(name), {}, dtype, std::move(data)});
  };
  add("decoder/activation", 1, int8_t{3});
  add("decoder/alignment_heads", 2, int16_t{1});
  add("decoder/num_heads", 2, static_cast<int16_t>(model.config.text_heads));
  add("decoder/pre_norm", 1, int8_t{1});
  add("encoder/num_heads", 2, static_cast<int16_t>(model.config.audio_heads));
  aliases.emplace_back("decoder/projection/weight", "decoder/embeddings/weight");
  // Parts of one variable follow one another; where K's bias belongs come zeros.
  for (const WhisperTensorShape& shape : WhisperTensorShapes(model.config)) {
    const WhisperTensor& tensor = model.tensors.at(shape.name);
    const Ct2Source source = Ct2SourceOf(shape.name);
    auto found = std::ranges::find(variables, source.variable, &Variable::name);
    if (found == variables.end()) {
      std::vector<uint32_t> sizes(shape.dims.begin(), shape.dims.end());
      sizes[0] *= static_cast<uint32_t>(source.parts);
      const uint8_t dtype = tensor.type == WeightType::kF16 ? 4 : 0;
      variables.push_back({source.variable, sizes, dtype, {}});
      found = variables.end() - 1;
    }
    const std::vector<std::byte> values = ValuesOf(tensor);
    found->data.resize(values.size() * static_cast<size_t>(source.parts));
    std::ranges::copy(values,
                      found->data.begin() + static_cast<ptrdiff_t>(values.size()) * source.part);
  }
}

WhisperCt2Parts::Variable& WhisperCt2Parts::Find(std::string_view name) {
  return FindByName(variables, name);
}

void WhisperCt2Parts::Erase(std::string_view name) {
  std::erase_if(variables, [&](const Variable& variable) { return variable.name == name; });
}

std::vector<std::byte> WhisperCt2Parts::Build() const {
  std::vector<std::byte> out;
  AppendNumber(out, version);
  AppendString(out, spec);
  AppendNumber(out, uint32_t{3});
  AppendNumber(out, static_cast<uint32_t>(variables.size()));
  for (const Variable& variable : variables) {
    AppendString(out, variable.name);
    AppendNumber(out, static_cast<uint8_t>(variable.dims.size()));
    for (const uint32_t size : variable.dims) AppendNumber(out, size);
    AppendNumber(out, variable.dtype);
    AppendNumber(out, static_cast<uint32_t>(variable.data.size()));
    AppendBytes(out, variable.data);
  }
  AppendNumber(out, static_cast<uint32_t>(aliases.size()));
  for (const auto& [alias, name] : aliases) {
    AppendString(out, alias);
    AppendString(out, name);
  }
  return out;
}

void RequireWholeOrRefused(const Result<WhisperTensors>& read) {
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  if (!read.ok()) {
    require(read.status().message().starts_with("fuzz: "));
    require(read.status().code() != StatusCode::kInternal);
    return;
  }
  require(CheckWhisperConfig(read->config, "").ok());
  const std::vector<WhisperTensorShape> shapes = WhisperTensorShapes(read->config);
  require(read->tensors.size() == shapes.size());
  for (const WhisperTensorShape& shape : shapes) {
    const WhisperTensor& tensor = read->tensors.at(shape.name);
    require(tensor.dims == shape.dims);
    require(shape.is_factor || tensor.type == WeightType::kF32);
    require(reinterpret_cast<uintptr_t>(tensor.data) % 64 == 0);
    const WeightMatrix matrix = tensor.matrix();
    std::vector<float> row(static_cast<size_t>(matrix.cols));
    for (int64_t i = 0; i < matrix.rows; ++i) {
      AvailableWeightKernels()[0]->decode[static_cast<int>(tensor.type)](matrix.row(i), matrix.cols,
                                                                         row.data());
      for (const float value : row) require(std::isfinite(value));
    }
  }
}

}  // namespace varve

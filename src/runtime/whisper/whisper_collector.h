// WhisperCollector: takes the tensors of a file in any order and gives a whole model, or says by
// name what is wrong. What the three readers share.
//
// Messages begin with the file's name. One thread.

#ifndef VARVE_RUNTIME_WHISPER_WHISPER_COLLECTOR_H_
#define VARVE_RUNTIME_WHISPER_WHISPER_COLLECTOR_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/whisper/whisper_tensors.h"
#include "varve/status.h"

namespace varve {

class WhisperCollector {
 public:
  // kInvalidArgument if the config cannot be a model's.
  static Result<WhisperCollector> Create(const WhisperConfig& config, std::string name);

  const std::vector<WhisperTensorShape>& shapes() const { return shapes_; }

  // The bytes of a tensor as a file says it has it, or why the model cannot have it so: its name is
  // no tensor's or came before, its dims (outermost first) are others, its type is not for it. A
  // last dimension of 1 more than there should be is ignored: ggml files have it in biases of
  // convolutions. Nothing is computed with dims before they are known to be right.
  Result<size_t> Expect(std::string_view tensor, WeightType type,
                        std::span<const int64_t> dims) const;

  // Copies the tensor, which Expect has taken in this type, from bytes of any alignment. Numbers
  // and scales that are not finite are refused.
  Status Add(std::string_view tensor, WeightType type, std::span<const std::byte> data);

  // kDataLoss names a tensor that is missing.
  Result<WhisperTensors> Finish() &&;

 private:
  WhisperCollector(const WhisperConfig& config, std::string name);
  Status Bad(std::string_view tensor, const std::string& message) const;

  std::string name_;
  WhisperTensors model_;
  std::vector<WhisperTensorShape> shapes_;
  std::map<std::string_view, const WhisperTensorShape*> by_name_;  // into shapes_
};

// "[384, 80, 3]"
std::string WhisperDimsText(std::span<const int64_t> dims);

}  // namespace varve

#endif  // VARVE_RUNTIME_WHISPER_WHISPER_COLLECTOR_H_

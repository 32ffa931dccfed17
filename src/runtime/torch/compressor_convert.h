// A compressor from a file of torch.save: what `varve fold convert` does.
//
// The state dict lies under model_state_dict.compressor, under compressor, or is the file itself;
// its keys are PREFIX.LAYER.SLOT.weight and .bias, for example compress_tk.0.3.weight. Shapes tell
// layers, head_dim, factor and whether there are image networks. Nothing in the file is run.

#ifndef VARVE_RUNTIME_TORCH_COMPRESSOR_CONVERT_H_
#define VARVE_RUNTIME_TORCH_COMPRESSOR_CONVERT_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "varve/compressor.h"
#include "varve/status.h"

namespace varve {

struct CompressorConvertOptions {
  CompressorDtype dtype = CompressorDtype::kF16;
  int factor = 0;     // 0: inputs of slot 0 / head_dim
  int head_dim = 0;   // 0: outputs of the last slot
  int num_heads = 0;  // written as it is
  int min_groups = 2;
  bool text_only = false;  // image networks are ignored
  // What the linear layers of a network are called, in the order in which they are computed. One to
  // kMaxCompressorSlots.
  std::vector<std::string> slots = {"0", "3", "6"};
};

struct ConvertedCompressor {
  Compressor compressor;
  std::string state_dict;            // where it was: "model_state_dict.compressor", … or ""
  std::vector<std::string> ignored;  // keys of the state dict that are no weight of a network
};

// `name` is for messages, which name the key. A network of which a weight is missing, numbers that
// are not finite or do not fit the dtype are errors; so is everything that the readers refuse.
// Numbers are rounded to nearest. Memory stays within 64 numbers per byte of the file, however
// often tensors share a storage.
Result<ConvertedCompressor> ConvertPthCompressor(std::span<const std::byte> bytes,
                                                 const std::string& name,
                                                 const CompressorConvertOptions& options);

}  // namespace varve

#endif  // VARVE_RUNTIME_TORCH_COMPRESSOR_CONVERT_H_

// ModelFingerprint: a number that tells model files apart, for whatever is kept of a model and must
// not meet another one (.varve files).
//
// XXH3-64 of the metadata, the tensor directory and the first 4096 bytes of each tensor: as fast as
// opening the file, and fine-tuned weights of the same shape differ. Never 0.

#ifndef VARVE_RUNTIME_GGUF_GGUF_FINGERPRINT_H_
#define VARVE_RUNTIME_GGUF_GGUF_FINGERPRINT_H_

#include <cstdint>

#include "runtime/gguf/gguf_file.h"

namespace varve {

uint64_t ModelFingerprint(const GgufFile& file);

}  // namespace varve

#endif  // VARVE_RUNTIME_GGUF_GGUF_FINGERPRINT_H_

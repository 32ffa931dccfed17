// TextStream of tokenizer.h.

#include "base/utf8.h"
#include "runtime/tokenizer/tokenizer.h"

namespace varve {

std::string TextStream::Next(int32_t id) {
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  if (bytes.empty()) return std::string();
  if (first_) {
    pending_ += tokenizer_.Decode({&id, 1});
    first_ = false;
  } else {
    pending_ += bytes;
  }
  return TakeWholeUtf8(&pending_, /*at_end=*/false);
}

std::string TextStream::Finish() { return TakeWholeUtf8(&pending_, /*at_end=*/true); }

}  // namespace varve

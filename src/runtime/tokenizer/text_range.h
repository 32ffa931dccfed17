// TextRange: a part of a text, by its bytes.

#ifndef VARVE_RUNTIME_TOKENIZER_TEXT_RANGE_H_
#define VARVE_RUNTIME_TOKENIZER_TEXT_RANGE_H_

#include <cstddef>

namespace varve {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

}  // namespace varve

#endif  // VARVE_RUNTIME_TOKENIZER_TEXT_RANGE_H_

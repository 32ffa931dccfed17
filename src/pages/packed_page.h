// PackedPage: the strips of a sealed page, losslessly compressed (src/store), each on its own, so
// that attention unpacks just the strip that it is about to read.
//
// Immutable. The bytes lie in the cache's arena; dictionaries are shared by the pages of a layer
// and live as long as one of them needs them.

#ifndef VARVE_PAGES_PACKED_PAGE_H_
#define VARVE_PAGES_PACKED_PAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rungs/rung.h"
#include "store/dictionary.h"
#include "store/part_codec.h"
#include "varve/cache.h"

namespace varve {

// Strips of a page are numbered as they lie in it: K and V of head 0, K and V of head 1, …
constexpr size_t StripIndex(Part part, int head) {
  return 2 * static_cast<size_t>(head) + (part == Part::kValue ? 1 : 0);
}

// One dictionary per strip of a layer's pages; null where none pays.
struct PackDictionaries {
  std::vector<std::shared_ptr<const store::Dictionary>> of_strip;

  const store::Dictionary* Of(size_t strip) const { return of_strip[strip].get(); }
  // Whether rows repeat so often that a dictionary knows them by heart.
  bool has_rows() const {
    for (const auto& dictionary : of_strip) {
      if (dictionary && dictionary->num_rows() > 0) return true;
    }
    return false;
  }
};

// A page's strips in packed form, wherever they come from.
struct PackedStrips {
  std::vector<std::byte> bytes;
  std::vector<uint32_t> ends;  // of each strip in `bytes`
  std::shared_ptr<const PackDictionaries> dictionaries;
};

struct PackedPage {
  std::byte* data = nullptr;
  size_t bytes = 0;                                      // of all strips
  bool spilled = false;                                  // `data` is in the spill file
  std::vector<uint32_t> ends;                            // of each strip in `data`
  std::shared_ptr<const PackDictionaries> dictionaries;  // null: none

  std::span<const std::byte> Strip(size_t strip) const {
    const size_t begin = strip == 0 ? 0 : ends[strip - 1];
    return {data + begin, ends[strip] - begin};
  }
  const store::Dictionary* DictionaryOf(size_t strip) const {
    return dictionaries ? dictionaries->Of(strip) : nullptr;
  }
};

// What the codec must know of a strip in this rung.
store::PartShape PartShapeOf(const RungDescriptor& rung, Part part, int dim, int page_tokens);
inline store::PartShape PartShapeOf(const Rung& rung, Part part, int dim, int page_tokens) {
  return PartShapeOf(rung.descriptor(), part, dim, page_tokens);
}

}  // namespace varve

#endif  // VARVE_PAGES_PACKED_PAGE_H_

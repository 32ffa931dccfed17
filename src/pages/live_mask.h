// LiveMask: which rows of a page a sequence still sees; one bit per row, up to 128 rows.

#ifndef VARVE_PAGES_LIVE_MASK_H_
#define VARVE_PAGES_LIVE_MASK_H_

#include <array>
#include <bit>
#include <cstdint>

namespace varve {

class LiveMask {
 public:
  using Words = std::array<uint64_t, 2>;
  LiveMask() = default;
  explicit LiveMask(const Words& words) : words_(words) {}
  const Words& words() const { return words_; }

  bool Get(int row) const { return (words_[row / 64] >> (row % 64)) & 1; }
  // Bits [begin, end), one way or the other.
  void Fill(int begin, int end, bool live) {
    for (int row = begin; row < end; ++row) {
      const uint64_t bit = uint64_t{1} << (row % 64);
      words_[row / 64] = live ? words_[row / 64] | bit : words_[row / 64] & ~bit;
    }
  }
  int Count() const { return std::popcount(words_[0]) + std::popcount(words_[1]); }
  // True if exactly the rows [0, rows) live. Asked once per page and head: no counting of bits.
  bool IsPrefix(int rows) const { return words_[0] == Ones(rows) && words_[1] == Ones(rows - 64); }

 private:
  // The lowest `count` bits; none if negative, all from 64 on.
  static uint64_t Ones(int count) {
    if (count <= 0) return 0;
    return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
  }

  Words words_ = {0, 0};
};

}  // namespace varve

#endif  // VARVE_PAGES_LIVE_MASK_H_

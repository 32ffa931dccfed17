// SplitMix64 (Steele, Lea, Flood 2014): random numbers that are the same on every machine, unlike
// those of the standard distributions. One addition and a mixing function; every seed is good. Not
// for secrets. A plain value: a copy gives the same numbers, independently of the original.

#ifndef VARVE_BASE_RANDOM_H_
#define VARVE_BASE_RANDOM_H_

#include <cstdint>

namespace varve {

class SplitMix64 {
 public:
  constexpr explicit SplitMix64(uint64_t seed) : state_(seed) {}

  // Used once, SplitMix64(x).Next() is a hash of x: neighbours give unrelated numbers.
  constexpr uint64_t Next() {
    uint64_t x = state_ += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace varve

#endif  // VARVE_BASE_RANDOM_H_

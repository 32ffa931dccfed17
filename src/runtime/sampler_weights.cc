#include "runtime/sampler_weights.h"

#include <array>

namespace varve {

namespace {

constexpr uint64_t MulHigh(uint64_t a, uint64_t b) {
  const uint64_t a_low = a & 0xFFFFFFFFu;
  const uint64_t b_low = b & 0xFFFFFFFFu;
  const uint64_t low = a_low * b_low;
  const uint64_t middle = (a >> 32) * b_low + (low >> 32);
  const uint64_t other = a_low * (b >> 32) + (middle & 0xFFFFFFFFu);
  return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32);
}

// 2^-(1/2), 2^-(1/4), …, 2^-(1/65536) in units of 2^-63, rounded to nearest.
constexpr std::array<uint64_t, 16> kRoots = {
    0x5A827999FCEF3242u, 0x6BA27E656B4EB57Au, 0x75606373EE921C97u, 0x7A92BE8A92436616u,
    0x7D41D96DB915019Du, 0x7E9F06067A4360BAu, 0x7F4F08AE3DC7C426u, 0x7FA765ACA88F6453u,
    0x7FD3AB290E46D769u, 0x7FE9D3A8E07BF086u, 0x7FF4E9597BED93ABu, 0x7FFA748DFF8DC61Fu,
    0x7FFD3A3F50020332u, 0x7FFE9D1DBC0A75AAu, 0x7FFF4E8E6306ED59u, 0x7FFFA74712C3CDFDu,
};

// 2^-(i/256) · 2^31 (level 0) and 2^-(i/65536) · 2^31 (level 1), rounded to nearest.
constexpr std::array<uint32_t, 256> MakePowers(size_t level) {
  std::array<uint32_t, 256> powers{};
  for (unsigned i = 0; i < 256; ++i) {
    uint64_t product = uint64_t{1} << 63;  // 2^-63
    for (unsigned bit = 0; bit < 8; ++bit) {
      // The highest bit of i is the largest root.
      if ((i >> (7 - bit) & 1) != 0) product = MulHigh(product, kRoots[8 * level + bit]) << 1;
    }
    powers[i] = static_cast<uint32_t>((product + (uint64_t{1} << 31)) >> 32);
  }
  return powers;
}

constexpr std::array<uint32_t, 256> kCoarse = MakePowers(0);
constexpr std::array<uint32_t, 256> kFine = MakePowers(1);
constexpr uint64_t kLn2 = 1488522236;  // ln 2 · 2^31
constexpr double kLog2E = 1.4426950408889634;

}  // namespace

uint64_t SoftmaxWeight(float best, float logit, float temperature) {
  const double difference = static_cast<double>(best) - static_cast<double>(logit);
  const double halvings = difference / static_cast<double>(temperature) * kLog2E;
  if (!(halvings < 64)) return 0;
  const auto fixed = static_cast<uint64_t>(halvings * 4294967296.0);  // units of 2^-32
  const auto fraction = static_cast<uint32_t>(fixed);
  // The last 16 bits are so small that 2^-x = 1 - x ln 2 within 2^-34.
  const uint64_t rest = (uint64_t{1} << 31) - (((fraction & 0xFFFFu) * kLn2) >> 32);
  uint64_t power = uint64_t{kCoarse[fraction >> 24]} * kFine[(fraction >> 16) & 0xFF];
  power = ((power + (uint64_t{1} << 30)) >> 31) * rest;
  power = (power + (uint64_t{1} << 21)) >> 22;  // in units of 2^-40
  return power >> (fixed >> 32);
}

uint64_t ScaleRandom(uint64_t random, uint64_t limit) { return MulHigh(random, limit); }

}  // namespace varve

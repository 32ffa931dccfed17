// Attention on pages in device memory against double precision on the rows as the CPU decodes them.

#include "cuda/device_attention.h"

#include <algorithm>
#include <cmath>

#include "cuda/testing/attention_case.h"
#include "cuda/testing/check.h"
#include "cuda/testing/device_buffer.h"

namespace varve::cuda::testing {
namespace {

using enum DeviceRung;
constexpr DeviceRung kRungs[] = {kF16, kBF16, kQ8_0, kQ8_0r, kQ4_0, kQ4_0r, kT4, kT3, kT2};

// Queries and weights are rounded to 11 bits: errors are about 2^-12 of a head's length. A wrong
// address or a lost row shows as 1e-2 and more.
constexpr double kMostError = 1.5e-3;
constexpr double kMostLseError = 2e-3;
// Queries of turned keys are rounded to 8 bits, as on the CPU.
constexpr double kMostByteError = 1.5e-2;
constexpr double kMostByteLseError = 2e-2;

bool HasTurnedKeys(const CaseSpec& spec) {
  for (const auto& sequence : spec.sequences) {
    for (const PageSpec& page : sequence) {
      if (page.key_rung >= kT4) return true;
    }
  }
  return false;
}

void Expect(const CaseSpec& spec, const char* what, int number) {
  const CaseResult result = RunCase(spec);
  CHECK_THAT(result.complete, "%s %d", what, number);
  const bool bytes = HasTurnedKeys(spec);
  const double most_lse = bytes ? kMostByteLseError : kMostLseError;
  CHECK_THAT(result.worst < (bytes ? kMostByteError : kMostError), "%s %d: %g", what, number,
             result.worst);
  CHECK_THAT(result.worst_lse < most_lse, "%s %d: %g", what, number, result.worst_lse);
  CHECK_THAT(result.worst_page_lse < most_lse, "%s %d: %g", what, number, result.worst_page_lse);
}

VARVE_CUDA_TEST(Attention, IsThatOfTheDecodedRowsInEveryRung) {
  uint64_t seed = 100;
  for (const DeviceRung rung : kRungs) {
    CaseSpec spec;
    spec.seed = ++seed;
    spec.sequences = {Pages(rung, rung, 64 * 5 + 17, 64)};
    Expect(spec, DeviceRungName(rung), 0);
  }
}

// Both against double precision on the same decoded rows. Rounding of queries and weights to 11
// bits is all that the device adds where the CPU rounds less (float and q8_0).
VARVE_CUDA_TEST(Attention, IsAsExactAsOnTheCpu) {
  uint64_t seed = 150;
  for (const DeviceRung rung : kRungs) {
    CaseSpec spec;
    spec.seed = ++seed;
    spec.compare_cpu = true;
    spec.sequences = {Pages(rung, rung, 64 * 8, 64), Pages(rung, rung, 64 * 3, 64)};
    const CaseResult result = RunCase(spec);
    std::printf("  %-6s error %.2e, on the CPU %.2e\n", DeviceRungName(rung), result.rms,
                result.cpu_rms);
    CHECK_THAT(result.rms < std::max(1.1 * result.cpu_rms, 6e-4), "%s: %g, CPU %g",
               DeviceRungName(rung), result.rms, result.cpu_rms);
  }
}

VARVE_CUDA_TEST(Attention, TakesEveryHeadDim) {
  uint64_t seed = 200;
  for (const int dim : {64, 96, 256}) {
    for (const DeviceRung rung : kRungs) {
      CaseSpec spec;
      spec.seed = ++seed;
      spec.head_dim = dim;
      spec.kv_heads = 1;
      spec.sequences = {Pages(rung, rung, 64 * 2 + 33, 64)};
      Expect(spec, DeviceRungName(rung), dim);
    }
  }
}

VARVE_CUDA_TEST(Attention, TakesEveryGroup) {
  uint64_t seed = 300;
  for (const int group : {1, 2, 3, 6, 7, 8, 16}) {
    CaseSpec spec;
    spec.seed = ++seed;
    spec.group = group;
    spec.sequences = {Pages(kT4, kQ4_0, 64 + 5, 64), Pages(kF16, kT3, 64, 64)};
    Expect(spec, "group", group);
    spec.head_dim = 256;
    Expect(spec, "group, head_dim 256", group);
  }
}

VARVE_CUDA_TEST(Attention, TakesPagesOf128) {
  uint64_t seed = 400;
  for (const DeviceRung rung : kRungs) {
    for (const int rows : {128 * 2 + 70, 31}) {
      CaseSpec spec;
      spec.seed = ++seed;
      spec.page_tokens = 128;
      spec.kv_heads = 1;
      spec.sequences = {Pages(rung, rung, rows, 128)};
      Expect(spec, DeviceRungName(rung), rows);
    }
  }
}

VARVE_CUDA_TEST(Attention, IsTheSameHoweverPagesAreSharedOut) {
  uint64_t seed = 450;
  for (const DeviceRung rung : {kF16, kBF16, kQ8_0r, kQ4_0, kT4}) {
    for (const Tiling tiling : {Tiling::kPages, Tiling::kTiles}) {
      for (const int page_tokens : {64, 128}) {
        CaseSpec spec;
        spec.seed = ++seed;
        spec.tiling = tiling;
        spec.page_tokens = page_tokens;
        spec.kv_heads = 1;
        spec.sequences = {Pages(rung, rung, 64 * 9 + 17, page_tokens, true)};
        Expect(spec, DeviceRungName(rung), page_tokens);
      }
    }
  }
}

VARVE_CUDA_TEST(Attention, TakesEverySizeOfPq) {
  uint64_t seed = 470;
  for (const int dim : {64, 96, 128, 256}) {
    for (const auto& [part, bits] : {std::pair{2, 8}, {2, 4}, {4, 8}, {1, 4}, {2, 6}, {4, 7}}) {
      CaseSpec spec;
      spec.seed = ++seed;
      spec.head_dim = dim;
      spec.pq_subspaces = dim / part;
      spec.pq_bits = bits;
      spec.pq_rotated = bits % 4 == 0;
      spec.page_tokens = dim == 96 ? 128 : 64;
      spec.sequences = {Pages(DeviceRung::kPq, DeviceRung::kPq, 64 * 3 + 17, spec.page_tokens),
                        Pages(DeviceRung::kPq, kF16, 40, spec.page_tokens, true)};
      spec.sequences[0].push_back({kF16, kF16, 30, false});
      spec.sequences[0].push_back({kT4, DeviceRung::kPq, 64, true});
      Expect(spec, "pq, head_dim * 100 + sub_dim * 10 + bits", dim * 100 + part * 10 + bits);
    }
  }
}

// These have a kernel of their own (pq_pairs.cuh), beside which there may be pages of floats.
VARVE_CUDA_TEST(Attention, LooksPairsOfChannelsUpIntoOperands) {
  uint64_t seed = 490;
  for (const int group : {1, 3, 4, 8}) {
    CaseSpec spec;
    spec.seed = ++seed;
    spec.group = group;
    spec.pq_subspaces = 64;
    spec.pq_bits = 8;
    spec.pq_rotated = group % 2 == 0;
    spec.soft_cap = group == 3 ? 2.0f : 0.0f;
    spec.splits = group == 8 ? 3 : 0;
    spec.sequences = {Pages(DeviceRung::kPq, DeviceRung::kPq, 64 * 27 + 17, 64, group == 1),
                      Pages(DeviceRung::kPq, DeviceRung::kPq, 40, 64, true),
                      {}};
    spec.sequences[0].push_back({kF16, kF16, 30, false});
    Expect(spec, "pairs, group", group);
  }
}

VARVE_CUDA_TEST(Attention, LeavesDeadRowsOut) {
  uint64_t seed = 500;
  for (const DeviceRung rung : kRungs) {
    CaseSpec spec;
    spec.seed = ++seed;
    spec.sequences = {Pages(rung, rung, 64 * 2 + 1, 64, true)};
    Expect(spec, DeviceRungName(rung), 0);
  }
}

VARVE_CUDA_TEST(Attention, MixesRungsAndSpaces) {
  CaseSpec spec;
  spec.seed = 600;
  spec.kv_heads = 3;
  std::vector<PageSpec> mixed;
  for (const DeviceRung key : kRungs) {
    for (const DeviceRung value : {kF16, kQ8_0, kQ4_0r, kT4, kT2})
      mixed.push_back({key, value, 64, false});
  }
  mixed.push_back({kF16, kF16, 1, false});
  spec.sequences = {mixed, Pages(kBF16, kT3, 200, 64)};
  Expect(spec, "mixed", 0);
}

VARVE_CUDA_TEST(Attention, JoinsSplitsOfRaggedSequences) {
  uint64_t seed = 700;
  for (const int splits : {1, 2, 3, 7, 33, 64}) {
    CaseSpec spec;
    spec.seed = ++seed;
    spec.splits = splits;
    // Shorter than the splits, empty, one row, and longer.
    spec.sequences = {Pages(kQ8_0, kQ8_0, 64 * 3, 64),
                      {},
                      Pages(kF16, kF16, 1, 64),
                      Pages(kT4, kT4, 64 * 11 + 63, 64)};
    Expect(spec, "splits", splits);
  }
}

VARVE_CUDA_TEST(Attention, OfSequencesWithoutPagesIsZero) {
  CaseSpec spec;
  spec.seed = 610;
  for (const Tiling tiling : {Tiling::kAuto, Tiling::kPages, Tiling::kTiles}) {
    spec.tiling = tiling;
    spec.sequences = {{}, {}, {}};
    Expect(spec, "empty batch, tiling", static_cast<int>(tiling));
  }
}

VARVE_CUDA_TEST(Attention, OfAQueryOfZerosIsTheMeanOfTheLiveRows) {
  uint64_t seed = 620;
  for (const DeviceRung rung : kRungs) {
    CaseSpec spec;
    spec.seed = ++seed;
    spec.zero_queries = true;
    spec.sequences = {Pages(rung, rung, 64 * 2 + 9, 64, true)};
    Expect(spec, DeviceRungName(rung), 0);
  }
}

// 99 KiB of shared memory, as devices for desktops have: strips of wide heads do not fit, by twos
// or at all.
constexpr size_t kDesktopShared = 101376;

VARVE_CUDA_TEST(Attention, ReadsWherePagesLieWhatDoesNotFitSharedMemory) {
  uint64_t seed = 630;
  for (const int dim : {64, 128, 256}) {
    for (const DeviceRung rung : {kF16, kBF16, kQ8_0}) {
      for (const int page_tokens : {64, 128}) {
        // The only coded strips here that do not fit. Kernels for a device with more shared memory
        // take it for granted that they do (StripInShared).
        const bool too_large = rung == kQ8_0 && dim == 128 && page_tokens == 128;
        if (too_large && Limits().shared_per_block > 2 * kDesktopShared) continue;
        CaseSpec spec;
        spec.seed = ++seed;
        spec.shared_per_block = kDesktopShared;
        spec.head_dim = dim;
        spec.page_tokens = page_tokens;
        spec.sequences = {Pages(rung, rung, 64 * 5 + 3, page_tokens, true), {}};
        Expect(spec, DeviceRungName(rung), dim * 1000 + page_tokens);
      }
    }
  }
}

// Kernels of 8 and of 16 query heads count their blocks in one place.
VARVE_CUDA_TEST(Attention, OfKernelsInTurnTakesOneWorkspace) {
  CaseSpec floats;
  floats.seed = 640;
  floats.group = 12;
  floats.splits = 3;
  for (int i = 0; i < 20; ++i) floats.sequences.push_back(Pages(kF16, kF16, 64 * 3, 64));
  CaseSpec pq = floats;
  pq.pq_subspaces = 64;
  pq.pq_bits = 4;
  for (auto& sequence : pq.sequences) {
    sequence = Pages(DeviceRung::kPq, DeviceRung::kPq, 64 * 3, 64);
  }
  for (const CaseResult& result : RunInTurn({floats, pq})) {
    CHECK_THAT(result.complete, "all outputs are written");
    CHECK_THAT(result.worst < kMostError, "%g", result.worst);
  }
}

// Calls with many pages have kernels of their own.
VARVE_CUDA_TEST(Attention, AddsManyPagesUp) {
  uint64_t seed = 660;
  for (const DeviceRung rung : kRungs) {
    for (const int splits : {0, 3}) {
      CaseSpec spec;
      spec.seed = ++seed;
      spec.max_pages = 4096;
      spec.splits = splits;
      // Several pages a warp, pages for a few warps, none.
      spec.sequences = {
          Pages(rung, rung, 64 * 99 + 17, 64, splits == 3), Pages(rung, rung, 64 * 3 + 40, 64), {}};
      spec.sequences[0].push_back({kF16, kF16, 30, false});
      Expect(spec, DeviceRungName(rung), splits);
    }
  }
}

// All pages times heads times blocks no longer fit into 32 bits, or so a call says.
VARVE_CUDA_TEST(Attention, CountsALongLine) {
  CaseSpec spec;
  spec.seed = 690;
  spec.max_pages = 1 << 26;
  spec.sequences = {Pages(kQ4_0, kQ4_0, 64 * 9 + 3, 64), {}, Pages(kQ4_0, kQ4_0, 70, 64)};
  Expect(spec, "a long line", spec.max_pages);
}

// Where sequences begin is read at once up to 31 of them.
VARVE_CUDA_TEST(Attention, FindsManySequences) {
  for (const int sequences : {31, 32, 33, 70}) {
    CaseSpec spec;
    spec.seed = 700 + static_cast<uint64_t>(sequences);
    spec.kv_heads = 1;
    spec.head_dim = 64;
    for (int i = 0; i < sequences; ++i) {
      const bool empty = i == 0 || i % 7 == 3 || i + 1 == sequences;
      spec.sequences.push_back(empty ? std::vector<PageSpec>{}
                                     : Pages(kQ8_0, kQ8_0, 20 + 64 * (i % 3), 64));
    }
    Expect(spec, "sequences", sequences);
  }
}

// A slot of the ring is one team's: with room for one page less there are as many pages, or one
// less for each of the two teams of the kernel for few pages.
VARVE_CUDA_TEST(Attention, HasAsManyPagesOfARingForEachTeam) {
  for (const DeviceRung rung : {kF16, kBF16}) {
    for (int group = 1; group <= 8; ++group) {
      DeviceAttention call;
      call.shape = {128, 2, 64, 0, 0};
      call.num_sequences = 1;
      call.query_heads = 2 * group;
      call.max_pages = 10;
      call.key_rungs = call.value_rungs = RungBit(rung);
      call.pure_pages = true;
      DeviceLimits limits = {132, 233472, 232448, true};  // those of an H200
      const size_t page = 2 * DeviceStripBytes(rung, true, call.shape);
      const size_t all = AttentionSharedBytes(call, limits);
      limits.shared_per_block -= page;
      const size_t less = AttentionSharedBytes(call, limits);
      CHECK_THAT(less <= all && (all - less) % (2 * page) == 0, "group %d: %zu, %zu of %zu", group,
                 all, less, page);
    }
  }
}

// So large a cap changes nothing; cap * tanh(x / cap) by way of 1 - 2 / (e + 1) would.
VARVE_CUDA_TEST(Attention, TakesLargeSoftCaps) {
  for (const float cap : {30.0f, 1e4f, 1e6f, 3e38f}) {
    CaseSpec spec;
    spec.seed = 720;
    spec.soft_cap = cap;
    spec.sequences = {Pages(kF16, kF16, 200, 64), Pages(kF16, kF16, 64, 64)};
    Expect(spec, "soft cap", static_cast<int>(std::log2(cap)));
  }
}

VARVE_CUDA_TEST(Attention, GivesPagesWithoutALiveRowNoMass) {
  uint64_t seed = 520;
  for (const DeviceRung rung : kRungs) {
    for (const int page_tokens : {64, 128}) {
      CaseSpec spec;
      spec.seed = ++seed;
      spec.page_tokens = page_tokens;
      spec.sequences = {Pages(rung, rung, 5 * page_tokens, page_tokens, true),
                        Pages(rung, rung, page_tokens + 5, page_tokens)};
      for (const size_t page : {0, 3, 4}) spec.sequences[0][page].dead = true;
      for (PageSpec& page : spec.sequences[1]) page.dead = true;
      Expect(spec, DeviceRungName(rung), page_tokens);
      if (page_tokens == 64) {
        spec.max_pages = 4096;
        Expect(spec, DeviceRungName(rung), 4096);
      }
      if (rung != kT3 && rung != kT2) {
        spec.tiling = Tiling::kTiles;
        Expect(spec, DeviceRungName(rung), -page_tokens);
      }
    }
  }
}

VARVE_CUDA_TEST(Attention, CapsScores) {
  CaseSpec spec;
  spec.seed = 800;
  spec.soft_cap = 2.0f;
  spec.sequences = {Pages(kQ8_0, kF16, 100, 64)};
  Expect(spec, "soft cap", 0);
}

VARVE_CUDA_TEST(Attention, RefusesWhatItHasNoKernelFor) {
  DeviceAttention call;
  call.shape = {128, 2, 64, 0, 0};
  call.num_sequences = 1;
  call.query_heads = 8;
  call.max_pages = 1;
  call.key_rungs = call.value_rungs = RungBit(kF16);
  const auto refused = [&](StatusCode code) {
    return Attend(call, Limits(), nullptr, 0, nullptr).code() == code;
  };
  CHECK_THAT(refused(StatusCode::kInvalidArgument), "too small a work space");
  call.shape.head_dim = 80;
  CHECK_THAT(refused(StatusCode::kUnimplemented), "head_dim 80");
  call.shape.head_dim = 128;
  call.shape.page_tokens = 32;
  CHECK_THAT(refused(StatusCode::kUnimplemented), "page_tokens 32");
  call.shape.page_tokens = 64;
  call.query_heads = 34;
  CHECK_THAT(refused(StatusCode::kUnimplemented), "group of 17");
  call.query_heads = 7;
  CHECK_THAT(refused(StatusCode::kUnimplemented), "heads that do not divide");
  call.query_heads = 8;
  call.key_rungs = 1u << 1;
  CHECK_THAT(refused(StatusCode::kUnimplemented), "f32");
  call.key_rungs = RungBit(kF16);
  call.key_rungs = RungBit(kT3);
  call.tiling = Tiling::kTiles;
  CHECK_THAT(refused(StatusCode::kUnimplemented), "t3 by tiles");
  call.tiling = Tiling::kAuto;
  call.key_rungs = RungBit(kF16);
  call.scale = 0.0f;
  CHECK_THAT(refused(StatusCode::kInvalidArgument), "scale 0");
}

VARVE_CUDA_TEST(Pages, OutsideThePoolAreRefused) {
  const PageShape shape = {128, 2, 64, 0, 0};
  const size_t bytes = DevicePageBytes(kF16, kQ4_0, shape);
  std::vector<std::byte> memory(4 * bytes + 256);
  auto* base =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256);
  const DevicePool pool = {base, bytes};
  DevicePage page;
  page.bytes = base;
  page.key_rung = kF16;
  page.value_rung = kQ4_0;
  page.rows = 64;
  page.live[0] = ~uint64_t{0};
  CHECK_THAT(CheckPages(&page, 1, shape, pool).ok(), "a page that fits");
  DevicePage bad = page;
  bad.bytes = base + 256;
  CHECK_THAT(!CheckPages(&bad, 1, shape, pool).ok(), "beyond the end");
  bad = page;
  bad.value_rung = kF16;
  CHECK_THAT(!CheckPages(&bad, 1, shape, pool).ok(), "longer than the rest");
  bad = page;
  bad.rows = 65;
  CHECK_THAT(!CheckPages(&bad, 1, shape, pool).ok(), "rows");
  bad = page;
  bad.live[1] = 1;
  CHECK_THAT(!CheckPages(&bad, 1, shape, pool).ok(), "live");
  bad = page;
  bad.key_rung = static_cast<DeviceRung>(1);
  CHECK_THAT(!CheckPages(&bad, 1, shape, pool).ok(), "rung");
}

}  // namespace
}  // namespace varve::cuda::testing

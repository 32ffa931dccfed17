#include "cuda/testing/cpu_rungs.h"

#include <array>
#include <memory>
#include <vector>

#include "kernels/kernel_tables.h"
#include "kernels/pq_tables.h"
#include "kernels/turned_tables.h"
#include "rungs/block/block_rung.h"
#include "rungs/float/float_rung.h"
#include "rungs/turned/turned_rung.h"

namespace varve {

// The scalar tables are the specification; these tests want no others.
std::vector<const TurnedKernels*> SimdTurnedKernels() { return {}; }
std::vector<const PqKernels*> SimdPqKernels() { return {}; }

namespace cuda::testing {
namespace {

static_assert(static_cast<int>(DeviceRung::kF16) == static_cast<int>(RungId::kF16));
static_assert(static_cast<int>(DeviceRung::kBF16) == static_cast<int>(RungId::kBF16));
static_assert(static_cast<int>(DeviceRung::kQ8_0) == static_cast<int>(RungId::kQ8_0));
static_assert(static_cast<int>(DeviceRung::kQ8_0r) == static_cast<int>(RungId::kQ8_0r));
static_assert(static_cast<int>(DeviceRung::kQ4_0) == static_cast<int>(RungId::kQ4_0));
static_assert(static_cast<int>(DeviceRung::kQ4_0r) == static_cast<int>(RungId::kQ4_0r));
static_assert(static_cast<int>(DeviceRung::kPq) == static_cast<int>(RungId::kPq));
static_assert(static_cast<int>(DeviceRung::kT4) == static_cast<int>(RungId::kT4));
static_assert(static_cast<int>(DeviceRung::kT3) == static_cast<int>(RungId::kT3));
static_assert(static_cast<int>(DeviceRung::kT2) == static_cast<int>(RungId::kT2));

const RungDescriptor kDescriptors[] = {
    {.name = "f16",
     .id = RungId::kF16,
     .strip_bytes = FloatStripBytes<FloatType::kF16>,
     .make = MakeFloatRung<FloatType::kF16>},
    {.name = "bf16",
     .id = RungId::kBF16,
     .strip_bytes = FloatStripBytes<FloatType::kBF16>,
     .make = MakeFloatRung<FloatType::kBF16>},
    {.name = "q8_0",
     .id = RungId::kQ8_0,
     .strip_bytes = BlockRungStripBytes<BlockType::kQ8>,
     .make = MakeBlockRung<BlockType::kQ8, false>},
    {.name = "q8_0r",
     .id = RungId::kQ8_0r,
     .strip_bytes = BlockRungStripBytes<BlockType::kQ8>,
     .make = MakeBlockRung<BlockType::kQ8, true>},
    {.name = "q4_0",
     .id = RungId::kQ4_0,
     .strip_bytes = BlockRungStripBytes<BlockType::kQ4>,
     .make = MakeBlockRung<BlockType::kQ4, false>},
    {.name = "q4_0r",
     .id = RungId::kQ4_0r,
     .strip_bytes = BlockRungStripBytes<BlockType::kQ4>,
     .make = MakeBlockRung<BlockType::kQ4, true>},
    {.name = "t4",
     .id = RungId::kT4,
     .strip_bytes = TurnedRungStripBytes<4>,
     .make = MakeTurnedRung<4>},
    {.name = "t3",
     .id = RungId::kT3,
     .strip_bytes = TurnedRungStripBytes<3>,
     .make = MakeTurnedRung<3>},
    {.name = "t2",
     .id = RungId::kT2,
     .strip_bytes = TurnedRungStripBytes<2>,
     .make = MakeTurnedRung<2>},
};

}  // namespace

const Rung* CpuRung(DeviceRung rung) {
  static const auto rungs = [] {
    std::array<std::unique_ptr<const Rung>, kNumRungIds> made;
    for (const RungDescriptor& descriptor : kDescriptors) {
      made[static_cast<size_t>(descriptor.id)] =
          descriptor.make(descriptor, {.kernels = &ScalarKernels(), .codebook = nullptr});
    }
    return made;
  }();
  return rungs[static_cast<size_t>(rung)].get();
}

}  // namespace cuda::testing
}  // namespace varve

#include "cuda/device_attention.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/align.h"
#include "cuda/attend_params.h"
#include "cuda/pq_rows.h"
#include "cuda/query_order_ids.h"
#include "cuda/shared_memory.h"

namespace varve::cuda {
namespace {

constexpr uint32_t kFloatRungs = RungBit(DeviceRung::kF16) | RungBit(DeviceRung::kBF16);
constexpr uint32_t kPlainBlocks = RungBit(DeviceRung::kQ8_0) | RungBit(DeviceRung::kQ4_0);
constexpr uint32_t kTurnedBlocks = RungBit(DeviceRung::kQ8_0r) | RungBit(DeviceRung::kQ4_0r);
constexpr uint32_t kCells = RungBit(DeviceRung::kT3) | RungBit(DeviceRung::kT2);
constexpr uint32_t kPqRung = RungBit(DeviceRung::kPq);
constexpr uint32_t kAllRungs =
    kFloatRungs | kPlainBlocks | kTurnedBlocks | kCells | kPqRung | RungBit(DeviceRung::kT4);

bool UsesPq(const DeviceAttention& call) {
  return ((call.key_rungs | call.value_rungs) & kPqRung) != 0;
}

uint32_t OrdersOf(uint32_t key_rungs) {
  const auto has = [&](uint32_t rungs) { return (key_rungs & rungs) != 0; };
  uint32_t orders = 0;
  if (has(RungBit(DeviceRung::kF16))) orders |= 1u << kOrderF16;
  if (has(RungBit(DeviceRung::kBF16))) orders |= 1u << kOrderBF16High | 1u << kOrderBF16Low;
  if (has(kPlainBlocks)) orders |= 1u << kOrderBlock;
  if (has(kTurnedBlocks)) orders |= 1u << kOrderBlockTurned;
  if (has(RungBit(DeviceRung::kT4))) orders |= 1u << kOrderT4;
  if (has(RungBit(DeviceRung::kT3))) orders |= 1u << kOrderT3;
  if (has(RungBit(DeviceRung::kT2))) orders |= 1u << kOrderT2;
  if (has(kCells | RungBit(DeviceRung::kT4))) orders |= 1u << kOrderMean;
  if (has(kPqRung)) orders |= 1u << kOrderPq;
  return orders;
}

uint32_t SpacesOf(uint32_t value_rungs) {
  uint32_t spaces = 0;
  if ((value_rungs & (kFloatRungs | kPlainBlocks)) != 0) spaces |= 1u << kSpacePlain;
  if ((value_rungs & (kTurnedBlocks | kCells | RungBit(DeviceRung::kT4))) != 0) {
    spaces |= 1u << kSpaceTurned;
  }
  if ((value_rungs & kPqRung) != 0) spaces |= 1u << kSpacePq;
  return spaces;
}

bool SharesPages(const DeviceAttention& call) {
  if (call.tiling != Tiling::kAuto) return call.tiling == Tiling::kTiles;
  return ((call.key_rungs | call.value_rungs) & ~kFloatRungs) == 0;
}

AttendKernel PqKernelOf(const DeviceAttention& call) {
  switch (call.shape.head_dim) {
    case 64:
      return PqAttendKernel64();
    case 96:
      return PqAttendKernel96();
    case 128:
      return PqAttendKernel128();
    default:
      return PqAttendKernel256();
  }
}

// The one for any mixture of rungs.
AttendKernel MixedKernelOf(const DeviceAttention& call) {
  if (UsesPq(call)) return PqKernelOf(call);
  const bool wide = call.query_heads / call.shape.kv_heads > 8;
  const bool tiles = SharesPages(call);
  switch (call.shape.head_dim) {
    case 64:
      return AttendKernel64(wide, tiles);
    case 96:
      return AttendKernel96(wide, tiles);
    case 128:
      return AttendKernel128(wide, tiles);
    default:
      return AttendKernel256(wide, tiles);
  }
}

// The ones for the only rung besides floats, or for one kind of floats, the better one first;
// without a function if there is none.
std::array<AttendKernel, 2> OneRungKernelsOf(const DeviceAttention& call) {
  const PageShape& shape = call.shape;
  const bool fits = shape.page_tokens == 64 && call.query_heads / shape.kv_heads <= 8 &&
                    call.tiling == Tiling::kAuto && call.pure_pages &&
                    (shape.head_dim == 64 || shape.head_dim == 128);
  uint32_t coded = call.key_rungs & ~kFloatRungs;
  if (coded == 0) coded = call.key_rungs;
  const uint32_t others = (call.key_rungs | call.value_rungs) & ~kFloatRungs & ~coded;
  if (!fits || others != 0 || !std::has_single_bit(coded)) return {};
  if ((coded & kFloatRungs) != 0 && call.value_rungs != coded) return {};
  const auto rung = static_cast<DeviceRung>(std::countr_zero(coded));
  if (shape.head_dim == 64) return {OneRungKernel64(rung)};
  const bool is_pq = rung == DeviceRung::kPq;
  const int64_t few_pages = is_pq || (coded & kFloatRungs) != 0 ? 4096 : 2048;
  const bool few =
      static_cast<int64_t>(call.num_sequences) * shape.kv_heads * call.max_pages < few_pages;
  if (is_pq && HasPairRows(shape.head_dim, shape.pq_subspaces, shape.pq_bits)) {
    return {PqPairsKernel128(few), PqPairsKernel128(!few)};
  }
  return {OneRungKernel128(rung, few), OneRungKernel128(rung, !few)};
}

// The largest strip that goes through a slot: where a warp takes pages of its own, those of
// floats, of which there are few then, are read where they lie.
uint32_t LargestStrip(const DeviceAttention& call) {
  const bool skip_floats = !SharesPages(call);
  size_t largest = 0;
  for (int id = 0; id < kNumRungIds; ++id) {
    const auto rung = static_cast<DeviceRung>(id);
    if (skip_floats && (kFloatRungs >> id & 1) != 0) continue;
    if ((call.key_rungs >> id & 1) != 0) {
      largest = std::max(largest, DeviceStripBytes(rung, true, call.shape));
    }
    if ((call.value_rungs >> id & 1) != 0) {
      largest = std::max(largest, DeviceStripBytes(rung, false, call.shape));
    }
  }
  return static_cast<uint32_t>(AlignUp<size_t>(largest, 128));
}

// A row of 256 bytes per code for K and V together; for wide heads one for each.
size_t PqTableBytes(const PageShape& shape) {
  return (size_t{256} << shape.pq_bits) * (shape.head_dim > 128 ? 2 : 1);
}

// How a launch uses shared memory: tables of pq, BlockShared with its fragments, buffers of pq,
// then K slots and V slots of the warps, where scratch shares the place of V; or scratch and the
// ring.
struct LaunchPlan {
  AttendKernel kernel;
  uint32_t slot_bytes = 0;  // 0: strips are read where they lie
  int ring_pages = 1;
  int block_heads = 0;
  size_t table_bytes = 0;
  size_t scratch_offset = 0;
  size_t buffer_offset = 0;
  size_t slots_offset = 0;
  size_t bytes = 0;
  int blocks_per_sm = 1;
};

constexpr size_t kReservedShared = 1024;  // of each block, by the system

// The ring has what is left of shared memory: as many blocks as leave it two pages, or one for each
// team of warps, without which teams would wait for each other. It has as many pages for one team
// as for another: a slot then is one team's, which has waited for the copy before. Of another's a
// barrier could still be in the phase before, which looks like the one that is waited for. Where
// there are no strips, or that many do not fit, entries alone go around.
void PlanRing(const DeviceLimits& limits, size_t scratch_bytes, size_t begin, LaunchPlan& plan) {
  plan.scratch_offset = begin;
  plan.slots_offset = AlignUp<size_t>(begin + scratch_bytes, 128);
  const int teams = plan.kernel.warps / 4;
  const auto fit_pages = [&](int blocks) {
    const size_t bytes =
        std::min(limits.shared_per_multiprocessor / static_cast<size_t>(blocks) - kReservedShared,
                 limits.shared_per_block);
    const size_t room = bytes < plan.slots_offset ? 0 : bytes - plan.slots_offset;
    const size_t page_bytes = 2 * static_cast<size_t>(plan.slot_bytes);
    const size_t pages = page_bytes > 0 ? room / page_bytes : kMaxRingPages;
    plan.ring_pages = static_cast<int>(std::min<size_t>(pages, kMaxRingPages)) / teams * teams;
    plan.blocks_per_sm = blocks;
    plan.bytes = plan.slots_offset + static_cast<size_t>(plan.ring_pages) * page_bytes;
  };
  for (int blocks = plan.kernel.blocks_per_sm; blocks > 0; --blocks) {
    fit_pages(blocks);
    if (plan.ring_pages >= std::max(teams, 2)) return;
  }
  if (plan.ring_pages >= teams) return;
  plan.slot_bytes = 0;
  fit_pages(1);
}

void PlanSlots(const DeviceLimits& limits, size_t scratch_bytes, size_t begin, LaunchPlan& plan) {
  const auto lay_out = [&] {
    const size_t slots = static_cast<size_t>(plan.kernel.warps) * plan.slot_bytes;
    plan.slots_offset = begin;
    plan.scratch_offset = AlignUp<size_t>(begin + slots, 128);
    plan.bytes = plan.scratch_offset + std::max(slots, scratch_bytes);
  };
  lay_out();
  if (plan.bytes > limits.shared_per_block) {
    plan.slot_bytes = 0;
    lay_out();
  }
  const auto fitting =
      static_cast<int>(limits.shared_per_multiprocessor / (plan.bytes + kReservedShared));
  plan.blocks_per_sm = std::clamp(fitting, 1, plan.kernel.blocks_per_sm);
}

LaunchPlan PlanKernel(const DeviceAttention& call, const DeviceLimits& limits,
                      const AttendKernel& kernel) {
  LaunchPlan plan;
  plan.kernel = kernel;
  plan.block_heads = std::min(call.query_heads / call.shape.kv_heads, kernel.heads);
  plan.slot_bytes = LargestStrip(call);
  if (UsesPq(call)) plan.table_bytes = PqTableBytes(call.shape);
  const size_t orders = static_cast<size_t>(std::popcount(OrdersOf(call.key_rungs)));
  plan.buffer_offset =
      AlignUp<size_t>(plan.table_bytes + kernel.fixed_bytes + orders * kernel.order_bytes, 128);
  const size_t begin = AlignUp<size_t>(plan.buffer_offset + kernel.buffer_bytes, 128);
  const size_t scratch = static_cast<size_t>(plan.block_heads) * kernel.scratch_head_bytes;
  kernel.own_pages ? PlanSlots(limits, scratch, begin, plan)
                   : PlanRing(limits, scratch, begin, plan);
  return plan;
}

LaunchPlan PlanLaunch(const DeviceAttention& call, const DeviceLimits& limits) {
  for (const AttendKernel& kernel : OneRungKernelsOf(call)) {
    if (kernel.function == nullptr) continue;
    const LaunchPlan plan = PlanKernel(call, limits, kernel);
    if (plan.slot_bytes != 0) return plan;
  }
  return PlanKernel(call, limits, MixedKernelOf(call));
}

DeviceStatus CheckCodebook(const DeviceCodebook& codebook, const PageShape& shape,
                           const char* name) {
  const bool pairs = HasPairRows(shape.head_dim, shape.pq_subspaces, shape.pq_bits);
  const char* missing = codebook.centroids == nullptr            ? "centroids"
                        : codebook.rows == nullptr               ? "rows"
                        : pairs && codebook.pair_rows == nullptr ? "pair_rows"
                                                                 : nullptr;
  if (missing == nullptr) return {};
  return {StatusCode::kInvalidArgument, "pq pages, but no %s in %s", missing, name};
}

DeviceStatus CheckPq(const DeviceAttention& call) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckPqShape(call.shape));
  if (call.shape.pq_bits == 0) {
    return {StatusCode::kInvalidArgument, "pq pages, but pq_bits is 0"};
  }
  if ((call.key_rungs & kPqRung) != 0) {
    VARVE_CUDA_RETURN_IF_ERROR(CheckCodebook(call.key_codebook, call.shape, "key_codebook"));
  }
  if ((call.value_rungs & kPqRung) != 0) {
    VARVE_CUDA_RETURN_IF_ERROR(CheckCodebook(call.value_codebook, call.shape, "value_codebook"));
  }
  return {};
}

DeviceStatus CheckCall(const DeviceAttention& call) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckShape(call.shape));
  const int kv_heads = call.shape.kv_heads;
  if (call.query_heads < kv_heads || call.query_heads % kv_heads != 0 ||
      call.query_heads / kv_heads > 16) {
    return {StatusCode::kUnimplemented,
            "query_heads %d on kv_heads %d: kernels are for groups of 1 ... 16", call.query_heads,
            kv_heads};
  }
  if (call.num_sequences < 0 || call.num_sequences > 65535) {
    return {StatusCode::kInvalidArgument, "num_sequences %d is not in 0 ... 65535",
            call.num_sequences};
  }
  if (call.max_pages < 0) {
    return {StatusCode::kInvalidArgument, "max_pages %d < 0", call.max_pages};
  }
  if (call.splits < 0 || call.splits > kMaxSplits) {
    return {StatusCode::kInvalidArgument, "splits %d is not in 0 ... %d", call.splits, kMaxSplits};
  }
  if (!(call.scale > 0.0f)) {
    return {StatusCode::kInvalidArgument, "scale %g is not above 0", call.scale};
  }
  if (((call.key_rungs | call.value_rungs) & ~kAllRungs) != 0) {
    return {StatusCode::kUnimplemented, "rungs %#x and %#x: kernels are for %#x", call.key_rungs,
            call.value_rungs, kAllRungs};
  }
  if (SharesPages(call) && ((call.key_rungs | call.value_rungs) & kCells) != 0) {
    return {StatusCode::kUnimplemented, "tiling by tiles: no kernel for t3 and t2"};
  }
  return UsesPq(call) ? CheckPq(call) : DeviceStatus();
}

int HeadChunks(const DeviceAttention& call, const LaunchPlan& plan) {
  return CeilDiv(call.query_heads / call.shape.kv_heads, plan.kernel.heads);
}

// As many as run at once, unless some would have fewer pages than can be worked on at a time.
int BlocksOf(const DeviceAttention& call, const DeviceLimits& limits, const LaunchPlan& plan) {
  const int64_t heads = std::max<int64_t>(
      static_cast<int64_t>(call.num_sequences) * call.shape.kv_heads * HeadChunks(call, plan), 1);
  if (call.splits > 0) return static_cast<int>(heads * call.splits);
  const int64_t least = plan.kernel.own_pages ? 4 : 2;  // warps share pages, or have their own
  const int64_t useful = CeilDiv<int64_t>(heads * std::max(call.max_pages, 1), least);
  const int64_t slots = static_cast<int64_t>(limits.multiprocessors) * plan.blocks_per_sm;
  // Where sequences are equally long and blocks a multiple of heads, no block begins in the middle
  // of one: that saves a second set-up of queries, which is worth some idle blocks.
  const int64_t whole = slots / heads * heads;
  return static_cast<int>(std::min(useful, whole * 10 >= slots * 9 ? whole : slots));
}

// The work space: counters, then references and sums, then sums of values; each at a multiple of
// 256.
struct WorkspaceLayout {
  size_t max_offset;
  size_t sums_offset;
  size_t bytes;
};

WorkspaceLayout LayoutOf(const DeviceAttention& call, const LaunchPlan& plan, int blocks) {
  const size_t parts = 2 * static_cast<size_t>(blocks) * static_cast<size_t>(plan.block_heads);
  WorkspaceLayout layout;
  layout.max_offset = AlignUp(AttentionCounterBytes(call), 256);
  layout.sums_offset = layout.max_offset + AlignUp(parts * sizeof(float2), 256);
  layout.bytes = layout.sums_offset + AlignUp(parts * call.shape.head_dim * sizeof(float), 256);
  return layout;
}

constexpr float kLargestSoftCap = 1e9f;

// All but the work space.
AttendParams ParamsOf(const DeviceAttention& call, const LaunchPlan& plan, int blocks) {
  AttendParams params;
  params.call = call;
  // No score is near it: what it would change is less than f32 can tell.
  if (call.soft_cap > kLargestSoftCap) params.call.soft_cap = 0.0f;
  params.group = call.query_heads / call.shape.kv_heads;
  params.head_chunks = HeadChunks(call, plan);
  params.block_heads = plan.block_heads;
  params.orders = OrdersOf(call.key_rungs);
  const uint64_t line = static_cast<uint64_t>(call.num_sequences) *
                        (static_cast<uint64_t>(call.max_pages) + 1) *
                        static_cast<uint64_t>(call.query_heads);
  params.short_line = line < (uint64_t{1} << 32) / static_cast<uint64_t>(blocks + 1) ? 1 : 0;
  params.spaces = SpacesOf(call.value_rungs);
  params.ring_pages = plan.ring_pages;
  params.slot_bytes = plan.slot_bytes;
  params.table_bytes = static_cast<uint32_t>(plan.table_bytes);
  params.scratch_offset = static_cast<uint32_t>(plan.scratch_offset);
  params.slots_offset = static_cast<uint32_t>(plan.slots_offset);
  params.buffer_offset = static_cast<uint32_t>(plan.buffer_offset);
  for (int id = 0; id < kNumRungIds; ++id) {
    const auto rung = static_cast<DeviceRung>(id);
    params.key_bytes[id] = static_cast<uint32_t>(DeviceStripBytes(rung, true, call.shape));
    params.value_bytes[id] = static_cast<uint32_t>(DeviceStripBytes(rung, false, call.shape));
  }
  return params;
}

// All of the first-level cache as shared memory, or fewer blocks would fit than planned.
DeviceStatus ReserveShared(const LaunchPlan& plan) {
  const void* kernel = plan.kernel.function;
  VARVE_CUDA_RETURN_IF_ERROR(AllowSharedMemory("attention", kernel, plan.bytes));
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return {StatusCode::kInternal, "attention: %s", cudaGetErrorString(error)};
}

DeviceStatus Launch(const LaunchPlan& plan, AttendParams& params, int blocks,
                    const DeviceLimits& limits, cudaStream_t stream) {
  const AttendKernel& kernel = plan.kernel;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.dynamicSmemBytes = plan.bytes;
  config.stream = stream;
  // Blocks may start while the kernel before ends; they wait for it before they read (AttendPages).
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = limits.overlaps_launches ? 1 : 0;
  void* arguments[] = {&params};
  const cudaError_t error = cudaLaunchKernelExC(&config, kernel.function, arguments);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();  // told here; or the next launch would report it
  return {StatusCode::kInternal, "attention: %s", cudaGetErrorString(error)};
}

// Whether kernels wait for the one before them (WaitForEarlierKernels): those that were compiled
// for older devices do not, though a newer one translates and runs them. Their binary is then one
// for the newer device, so it is the version of the PTX that tells.
bool KernelsWait() {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, AttendKernel128(false, false).function) != cudaSuccess) {
    (void)cudaGetLastError();
    return false;
  }
  return attributes.ptxVersion >= 90;
}

}  // namespace

DeviceStatus QueryDevice(int device, DeviceLimits* limits) {
  int values[4] = {};
  constexpr cudaDeviceAttr kAttributes[4] = {
      cudaDevAttrMultiProcessorCount, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
      cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrComputeCapabilityMajor};
  for (int i = 0; i < 4; ++i) {
    const cudaError_t error = cudaDeviceGetAttribute(&values[i], kAttributes[i], device);
    if (error == cudaSuccess) continue;
    (void)cudaGetLastError();  // told here; or the next launch would report it
    return {StatusCode::kNotFound, "device %d: %s", device, cudaGetErrorString(error)};
  }
  limits->multiprocessors = values[0];
  limits->shared_per_multiprocessor = static_cast<size_t>(values[1]);
  limits->shared_per_block = static_cast<size_t>(values[2]);
  limits->overlaps_launches = values[3] >= 9 && KernelsWait();
  return {};
}

int ChooseBlocks(const DeviceAttention& call, const DeviceLimits& limits) {
  return BlocksOf(call, limits, PlanLaunch(call, limits));
}

size_t AttentionSharedBytes(const DeviceAttention& call, const DeviceLimits& limits) {
  return PlanLaunch(call, limits).bytes;
}

// As many for every kernel: what one call leaves in the place of sums may not be another's.
size_t AttentionCounterBytes(const DeviceAttention& call) {
  return static_cast<size_t>(call.num_sequences) * static_cast<size_t>(call.query_heads) *
         sizeof(uint32_t);
}

size_t AttentionWorkspaceBytes(const DeviceAttention& call, const DeviceLimits& limits) {
  if (!CheckCall(call).ok()) return 0;
  const LaunchPlan plan = PlanLaunch(call, limits);
  return LayoutOf(call, plan, BlocksOf(call, limits, plan)).bytes;
}

DeviceStatus InitAttentionWorkspace(void* workspace, size_t bytes, cudaStream_t stream) {
  const cudaError_t error = cudaMemsetAsync(workspace, 0, bytes, stream);
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  return {StatusCode::kInternal, "work space of %zu bytes: %s", bytes, cudaGetErrorString(error)};
}

DeviceStatus Attend(const DeviceAttention& call, const DeviceLimits& limits, void* workspace,
                    size_t workspace_bytes, cudaStream_t stream) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckCall(call));
  if (call.num_sequences == 0) return {};
  const LaunchPlan plan = PlanLaunch(call, limits);
  const int blocks = BlocksOf(call, limits, plan);
  AttendParams params = ParamsOf(call, plan, blocks);
  const WorkspaceLayout layout = LayoutOf(call, plan, blocks);
  if (workspace_bytes < layout.bytes) {
    return {StatusCode::kInvalidArgument, "workspace_bytes %zu < %zu", workspace_bytes,
            layout.bytes};
  }
  auto* base = static_cast<std::byte*>(workspace);
  params.arrived = reinterpret_cast<uint32_t*>(base);
  params.part_max = reinterpret_cast<float2*>(base + layout.max_offset);
  params.part_sums = reinterpret_cast<float*>(base + layout.sums_offset);
  VARVE_CUDA_RETURN_IF_ERROR(ReserveShared(plan));
  return Launch(plan, params, blocks, limits, stream);
}

}  // namespace varve::cuda

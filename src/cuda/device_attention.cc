#include "cuda/device_attention.h"

#include <algorithm>
#include <cstdlib>

#include "base/align.h"
#include "cuda/attend_params.h"
#include "cuda/query_order_ids.h"

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

AttendKernel KernelOf(const DeviceAttention& call) {
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

// How a launch uses shared memory.
struct SharedPlan {
  uint32_t slot_bytes = 0;  // 0: strips are read where they lie
  size_t table_bytes = 0;
  size_t scratch_offset = 0;
  size_t bytes = 0;
  int blocks_per_sm = 1;
};

SharedPlan PlanShared(const DeviceAttention& call, const DeviceLimits& limits) {
  const AttendKernel kernel = KernelOf(call);
  constexpr size_t kReserved = 2048;  // of each block, by the system and the compiler
  SharedPlan plan;
  int orders = 0;
  for (uint32_t rest = OrdersOf(call.key_rungs); rest != 0; rest &= rest - 1) ++orders;
  plan.scratch_offset = AlignUp<size_t>(kernel.fixed_bytes + orders * kernel.order_bytes, 128);
  plan.slot_bytes = LargestStrip(call);
  if (UsesPq(call)) plan.table_bytes = PqTableBytes(call.shape);
  const auto bytes = [&] {
    const size_t slots = 2 * static_cast<size_t>(kernel.readers) * plan.slot_bytes;
    return plan.table_bytes + plan.scratch_offset +
           std::max(
               {slots + kernel.buffer_bytes, slots / 2 + kernel.row_bytes, kernel.merge_bytes});
  };
  if (bytes() > limits.shared_per_block) plan.slot_bytes = 0;
  plan.bytes = bytes();
  const auto fitting =
      static_cast<int>(limits.shared_per_multiprocessor / (plan.bytes + kReserved));
  plan.blocks_per_sm = std::clamp(fitting, 1, kernel.blocks_per_sm);
  return plan;
}

DeviceStatus CheckPq(const DeviceAttention& call) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckPqShape(call.shape));
  const bool keys = (call.key_rungs & kPqRung) == 0 || call.key_codebook.centroids != nullptr;
  const bool values = (call.value_rungs & kPqRung) == 0 || call.value_codebook.centroids != nullptr;
  if (call.shape.pq_bits == 0 || !keys || !values) {
    return {StatusCode::kInvalidArgument, "pq pages, but %s",
            call.shape.pq_bits == 0 ? "pq_bits is 0"
            : keys                  ? "no value_codebook"
                                    : "no key_codebook"};
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

int HeadChunks(const DeviceAttention& call) {
  return CeilDiv(call.query_heads / call.shape.kv_heads, KernelOf(call).heads);
}

// The work space: counters, then references and sums, then sums of values; each at a multiple of
// 256.
struct WorkspaceLayout {
  size_t max_offset;
  size_t sums_offset;
  size_t bytes;
};

WorkspaceLayout LayoutOf(const DeviceAttention& call, int splits) {
  const size_t sequences = static_cast<size_t>(call.num_sequences);
  const size_t parts = sequences * call.query_heads * splits;
  const size_t counters = sequences * call.shape.kv_heads * HeadChunks(call) * sizeof(uint32_t);
  WorkspaceLayout layout;
  layout.max_offset = AlignUp(counters, 256);
  layout.sums_offset = layout.max_offset + AlignUp(parts * sizeof(float2), 256);
  layout.bytes = layout.sums_offset + AlignUp(parts * call.shape.head_dim * sizeof(float), 256);
  return layout;
}

// All but the work space.
AttendParams ParamsOf(const DeviceAttention& call, const DeviceLimits& limits,
                      const SharedPlan& plan) {
  AttendParams params;
  params.call = call;
  params.group = call.query_heads / call.shape.kv_heads;
  params.head_chunks = HeadChunks(call);
  params.splits = ChooseSplits(call, limits);
  params.orders = OrdersOf(call.key_rungs);
  params.spaces = SpacesOf(call.value_rungs);
  params.floats_apart = (call.value_rungs & kPlainBlocks) == 0;
  params.slot_bytes = plan.slot_bytes;
  params.table_bytes = static_cast<uint32_t>(plan.table_bytes);
  params.scratch_offset = static_cast<uint32_t>(plan.scratch_offset);
  params.rows_offset = static_cast<uint32_t>(KernelOf(call).readers) * plan.slot_bytes;
  for (int id = 0; id < kNumRungIds; ++id) {
    const auto rung = static_cast<DeviceRung>(id);
    params.key_bytes[id] = static_cast<uint32_t>(DeviceStripBytes(rung, true, call.shape));
    params.value_bytes[id] = static_cast<uint32_t>(DeviceStripBytes(rung, false, call.shape));
  }
  return params;
}

// Lets the kernel have that much shared memory.
DeviceStatus ReserveShared(const AttendKernel& kernel, size_t shared_bytes) {
  cudaError_t error = cudaFuncSetAttribute(
      kernel.function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
  // All of the first-level cache as shared memory, or fewer blocks would fit than planned.
  if (error == cudaSuccess) {
    error = cudaFuncSetAttribute(kernel.function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxShared);
  }
  if (error == cudaSuccess) return {};
  return {StatusCode::kUnimplemented, "shared memory of %zu bytes a block: %s", shared_bytes,
          cudaGetErrorString(error)};
}

DeviceStatus CheckLaunch(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return {StatusCode::kInternal, "%s: %s", what, cudaGetErrorString(error)};
}

DeviceStatus Launch(const AttendKernel& kernel, AttendParams& params, const DeviceLimits& limits,
                    size_t shared_bytes, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(params.splits),
                        static_cast<unsigned>(params.call.shape.kv_heads * params.head_chunks),
                        static_cast<unsigned>(params.call.num_sequences));
  config.blockDim = dim3(static_cast<unsigned>(kernel.warps * 32));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  // Blocks may start while the kernel before ends; they wait for it before they read (AttendPages).
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlap;
  config.numAttrs = limits.overlaps_launches ? 1 : 0;
  void* arguments[] = {&params};
  const cudaError_t error = cudaLaunchKernelExC(&config, kernel.function, arguments);
  if (error != cudaSuccess) {
    return {StatusCode::kInternal, "attention: %s", cudaGetErrorString(error)};
  }
  return CheckLaunch("attention");
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
    return {StatusCode::kNotFound, "device %d: %s", device, cudaGetErrorString(error)};
  }
  limits->multiprocessors = values[0];
  limits->shared_per_multiprocessor = static_cast<size_t>(values[1]);
  limits->shared_per_block = static_cast<size_t>(values[2]);
  limits->overlaps_launches = values[3] >= 9;
  return {};
}

int ChooseSplits(const DeviceAttention& call, const DeviceLimits& limits) {
  if (call.splits > 0) return call.splits;
  const AttendKernel kernel = KernelOf(call);
  const int64_t heads =
      static_cast<int64_t>(call.num_sequences) * call.shape.kv_heads * HeadChunks(call);
  // More blocks than there are pages for their readers stand idle.
  const int64_t useful = CeilDiv<int64_t>(call.max_pages, kernel.readers);
  const int64_t most = std::clamp<int64_t>(useful, 1, kMaxSplits);
  const int64_t slots =
      static_cast<int64_t>(limits.multiprocessors) * PlanShared(call, limits).blocks_per_sm;
  // Time in units of one page: full rounds of blocks, and what a block costs besides its pages.
  constexpr int64_t kBlockCost = 3;
  int64_t best = 1;
  int64_t best_time = INT64_MAX;
  for (int64_t splits = 1; splits <= most; ++splits) {
    const int64_t rounds = CeilDiv(std::max<int64_t>(heads, 1) * splits, slots);
    const int64_t pages = CeilDiv(CeilDiv<int64_t>(call.max_pages, splits), kernel.readers);
    const int64_t time = rounds * (pages + kBlockCost);
    if (time < best_time) {
      best_time = time;
      best = splits;
    }
  }
  return static_cast<int>(best);
}

size_t AttentionWorkspaceBytes(const DeviceAttention& call, const DeviceLimits& limits) {
  if (!CheckCall(call).ok()) return 0;
  return LayoutOf(call, ChooseSplits(call, limits)).bytes;
}

DeviceStatus InitAttentionWorkspace(void* workspace, size_t bytes, cudaStream_t stream) {
  const cudaError_t error = cudaMemsetAsync(workspace, 0, bytes, stream);
  if (error == cudaSuccess) return {};
  return {StatusCode::kInternal, "work space of %zu bytes: %s", bytes, cudaGetErrorString(error)};
}

DeviceStatus Attend(const DeviceAttention& call, const DeviceLimits& limits, void* workspace,
                    size_t workspace_bytes, cudaStream_t stream) {
  VARVE_CUDA_RETURN_IF_ERROR(CheckCall(call));
  if (call.num_sequences == 0) return {};
  const SharedPlan plan = PlanShared(call, limits);
  AttendParams params = ParamsOf(call, limits, plan);
  const WorkspaceLayout layout = LayoutOf(call, params.splits);
  if (workspace_bytes < layout.bytes) {
    return {StatusCode::kInvalidArgument, "workspace_bytes %zu < %zu", workspace_bytes,
            layout.bytes};
  }
  auto* base = static_cast<std::byte*>(workspace);
  params.arrived = reinterpret_cast<uint32_t*>(base);
  params.part_max = reinterpret_cast<float2*>(base + layout.max_offset);
  params.part_sums = reinterpret_cast<float*>(base + layout.sums_offset);
  const AttendKernel kernel = KernelOf(call);
  VARVE_CUDA_RETURN_IF_ERROR(ReserveShared(kernel, plan.bytes));
  return Launch(kernel, params, limits, plan.bytes, stream);
}

}  // namespace varve::cuda

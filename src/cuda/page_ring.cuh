// Pages on their way into shared memory, for warps that share each page, four by four. One more
// warp of the block sends for strips. Between them is a ring of slots, one page each: its entry,
// its K strip and its V strip. The sender walks through the pages of the block and waits only for
// slots; readers give the slot of K back as soon as they have the scores, that of V after the sums.
// So strips are always on their way, across heads, too, while readers join what they have. Entry n
// is for team n % teams.

#ifndef VARVE_CUDA_PAGE_RING_CUH_
#define VARVE_CUDA_PAGE_RING_CUH_

#include <cstddef>
#include <cstdint>

#include "cuda/attend_params.h"
#include "cuda/warp_ops.cuh"

namespace varve::cuda {

__device__ __forceinline__ int SpaceOf(DeviceRung value_rung) {
  switch (value_rung) {
    case DeviceRung::kF16:
    case DeviceRung::kBF16:
    case DeviceRung::kQ8_0:
    case DeviceRung::kQ4_0:
      return kSpacePlain;
    case DeviceRung::kPq:
      return kSpacePq;
    default:
      return kSpaceTurned;
  }
}

// What a reader is told of a page.
struct alignas(16) PageEntry {
  static constexpr uint32_t kFull = 1u << 31;                            // all rows are live
  static constexpr uint32_t kKeysLie = 1u << 30, kValuesLie = 1u << 29;  // are read where they lie
  static constexpr uint32_t kEnd = 1u << 28;  // no page: the space has no more

  uint32_t bits;  // rungs as they lie in the record, K in the lowest byte, and flags; of an end the
                  // spaces that were met
  int index;      // of its record
  const std::byte* strips;  // K where it lies, V behind it
  unsigned long long live[2];

  __device__ __forceinline__ static DeviceRung KeyRung(uint32_t bits) {
    return static_cast<DeviceRung>(bits & 255);
  }
  __device__ __forceinline__ static DeviceRung ValueRung(uint32_t bits) {
    return static_cast<DeviceRung>(bits >> 8 & 255);
  }
};
static_assert(sizeof(PageEntry) == 32);

// A record of the page table, as a lane reads it.
struct PageRecord {
  const std::byte* bytes;
  unsigned long long live[2];
  uint32_t bits;  // as those of PageEntry
  uint32_t key_bytes;
  uint32_t value_bytes;

  __device__ __forceinline__ PageRecord(const AttendParams& params, int page) {
    static_assert(offsetof(DevicePage, key_rung) == 24 && offsetof(DevicePage, value_rung) == 25);
    const auto* record = reinterpret_cast<const ulonglong2*>(params.call.pages + page);
    const ulonglong2 low = __ldg(record), high = __ldg(record + 1);
    const auto rungs = static_cast<uint32_t>(high.y) & 0xFFFF;
    bytes = reinterpret_cast<const std::byte*>(low.x);
    live[0] = low.y;
    live[1] = high.x;
    key_bytes = params.key_bytes[rungs & 255];
    value_bytes = params.value_bytes[rungs >> 8];
    const bool full = low.y == ~0ull && (params.call.shape.page_tokens == 64 || high.x == ~0ull);
    bits = rungs | (full ? PageEntry::kFull : 0) |
           (key_bytes > params.slot_bytes ? PageEntry::kKeysLie : 0) |
           (value_bytes > params.slot_bytes ? PageEntry::kValuesLie : 0);
  }
  // Strips that will be read where they lie, into the second-level cache.
  __device__ __forceinline__ void PrefetchLying(const std::byte* strips) const {
    if ((bits & PageEntry::kKeysLie) != 0) Prefetch(strips, key_bytes);
    if ((bits & PageEntry::kValuesLie) != 0) Prefetch(strips + key_bytes, value_bytes);
  }
};

// Both ends of the ring in shared memory.
struct PageRing {
  uint64_t* barriers;  // [kRingBarriers][kMaxRingPages]
  PageEntry* entries;  // [kMaxRingPages]
  std::byte* slots;    // [pages][slot_bytes of K and V]
  uint32_t slot_bytes;
  int pages;

  __device__ __forceinline__ uint64_t* There(bool value, int slot) const {
    return barriers + (value ? kMaxRingPages : 0) + slot;
  }
  __device__ __forceinline__ uint64_t* Read(bool value, int slot) const {
    return barriers + (value ? 3 : 2) * kMaxRingPages + slot;
  }
  __device__ __forceinline__ std::byte* Slot(bool value, int slot) const {
    return slots + static_cast<uint32_t>(2 * slot + (value ? 1 : 0)) * slot_bytes;
  }
};

// Barriers of a ring whose strips have `readers` warps each. All threads; a barrier of the block
// must follow.
__device__ __forceinline__ void InitRing(const PageRing& ring, int readers, int thread,
                                         int num_threads) {
  // Lanes would take turns: warps get some each.
  const int warp = thread / 32, lane = thread % 32;
  for (int slot = warp; slot < ring.pages; slot += num_threads / 32) {
    if (lane < kRingBarriers) {
      InitBarrier(ring.barriers + lane * kMaxRingPages + slot, lane < 2 ? 1 : readers);
    }
  }
  FenceCopies();
}

// A place that goes around the ring.
struct RingPlace {
  int slot = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void Advance(int by, int pages) {
    slot += by;
    while (slot >= pages) {
      slot -= pages;
      phase ^= 1;
    }
  }
};

// The sender. Each lane reads one of the next 32 records, so that their latency is paid once and
// the lane that sends for a strip has its place.
class PageSender {
 public:
  __device__ __forceinline__ PageSender(const AttendParams& params, const PageRing& ring, int lane)
      : params_(params), ring_(ring), lane_(lane) {}

  // Pages [begin, end) that belong to the space, and an end for each team. `met` gets the spaces of
  // all pages.
  __device__ __forceinline__ void SendPages(int kv_head, int begin, int end, int space, int teams,
                                            uint32_t* met) {
    for (int first = begin; first < end; first += 32) {
      bool mine = false;
      uint32_t spaces = 0;
      if (first + lane_ < end) {
        Load(kv_head, first + lane_);
        const int of_page = SpaceOf(PageEntry::ValueRung(bits_));
        spaces = 1u << of_page;
        mine = of_page == space;
      }
      for (int s = 0; s < kNumSpaces; ++s) {
        if (__any_sync(0xFFFFFFFFu, (spaces >> s & 1) != 0)) *met |= 1u << s;
      }
      for (uint32_t left = __ballot_sync(0xFFFFFFFFu, mine); left != 0; left &= left - 1) {
        const int owner = __ffs(left) - 1;
        SendEntry(__shfl_sync(0xFFFFFFFFu, bits_, owner), first, owner);
      }
    }
    for (int team = 0; team < teams; ++team) {
      SendEntry(PageEntry::kEnd | PageEntry::kKeysLie | PageEntry::kValuesLie | *met, 0, 0);
    }
  }

 private:
  __device__ __forceinline__ void Load(int kv_head, int page) {
    const PageRecord record(params_, page);
    bits_ = record.bits;
    key_bytes_ = record.key_bytes;
    value_bytes_ = record.value_bytes;
    strips_ = record.bytes + static_cast<size_t>(kv_head) * (key_bytes_ + value_bytes_);
    live_[0] = record.live[0];
    live_[1] = record.live[1];
    record.PrefetchLying(strips_);
  }

  __device__ __forceinline__ void SendEntry(uint32_t bits, int first, int owner) {
    WaitCopy(ring_.Read(false, at_.slot), at_.phase ^ 1);
    if (lane_ == owner) {
      ring_.entries[at_.slot] = {bits, first + owner, strips_, {live_[0], live_[1]}};
    }
    SendPart(false, bits & PageEntry::kKeysLie, owner);
    WaitCopy(ring_.Read(true, at_.slot), at_.phase ^ 1);
    SendPart(true, bits & PageEntry::kValuesLie, owner);
    at_.Advance(1, ring_.pages);
  }
  __device__ __forceinline__ void SendPart(bool value, uint32_t lies, int owner) {
    uint64_t* there = ring_.There(value, at_.slot);
    if (lies != 0) {
      ArriveBarrier(there, lane_, owner);
    } else {
      StartCopy(there, ring_.Slot(value, at_.slot), strips_ + (value ? key_bytes_ : 0),
                value ? value_bytes_ : key_bytes_, lane_, owner);
    }
  }

  const AttendParams& params_;
  const PageRing ring_;
  const int lane_;
  RingPlace at_;
  // This lane's page.
  const std::byte* strips_ = nullptr;
  uint32_t key_bytes_ = 0;
  uint32_t value_bytes_ = 0;
  uint32_t bits_ = 0;
  unsigned long long live_[2] = {0, 0};
};

}  // namespace varve::cuda

#endif  // VARVE_CUDA_PAGE_RING_CUH_

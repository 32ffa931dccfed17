#include "cli/gate/faulty_pack_work.h"

namespace varve::cli {

void FaultyPackWork::Run(const CacheShape& shape, PackJob& job) {
  CodecPackWork()->Run(shape, job);
  if (job.kind != PackJob::Kind::kPack || !job.status.ok()) return;
  for (PackJob::Packed& packed : job.packed) {
    if (!packed.status.ok() || packed.strips.ends.empty() || has_struck_.exchange(true)) continue;
    packed.strips.bytes[packed.strips.ends[0] / 2] ^= std::byte{0x10};
    // Mode full writes this back in place of the page.
    if (!packed.restored.empty()) packed.restored[0] ^= std::byte{0x10};
    return;
  }
}

}  // namespace varve::cli

// CacheServices: what a cache takes from its surroundings besides its options: kernels, the calls
// that write files, room on the disk, and the work that packing gives to its threads. All have a
// default, which Cache::Create uses; CreateCache is for callers inside the tree that have others.
//
// Nothing is owned; all outlive the cache.

#ifndef VARVE_CACHE_CACHE_SERVICES_H_
#define VARVE_CACHE_CACHE_SERVICES_H_

#include <memory>

#include "attention/backend.h"
#include "base/atomic_file.h"
#include "cache/pack_work.h"
#include "kernels/kernels.h"
#include "pages/spill_file.h"
#include "varve/cache.h"

namespace varve {

struct CacheServices {
  const Kernels* kernels = &ActiveKernels();
  FileOps* files = SystemFileOps();     // of Save
  DiskSpace* disk = SystemDiskSpace();  // of the spill file
  PackWork* pack_work = CodecPackWork();
  MakeDeviceBackend make_cuda = LinkedCudaBackend();  // null: none
};

Result<std::unique_ptr<Cache>> CreateCache(const CacheShape& shape, CacheOptions options,
                                           const CacheServices& services);

}  // namespace varve

#endif  // VARVE_CACHE_CACHE_SERVICES_H_

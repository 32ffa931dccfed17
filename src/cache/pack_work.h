// PackJob and PackWork: what packing gives to its threads, and who does it.
//
// A job is a group of sealed pages to pack, or of packed ones to restore. PackWork reads raw or
// packed bytes that nobody changes and writes into the job alone; what comes of it is installed by
// the cache, on its own thread. It knows no queue and no thread (pack_workers.h).

#ifndef VARVE_CACHE_PACK_WORK_H_
#define VARVE_CACHE_PACK_WORK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "pages/page.h"
#include "store/gear_stream.h"
#include "varve/status.h"

namespace varve {

struct PackJob {
  enum class Kind { kPack, kRestore };
  Kind kind = Kind::kPack;
  int layer = 0;
  std::vector<PageRef> pages;
  // Their packed form. kRestore: of each. kPack: null where the page is raw; the others are
  // unpacked to be packed again.
  std::vector<std::shared_ptr<const PackedPage>> packed_from;

  // kPack. Dictionaries to use; with learn they are made anew from these pages, those of strips
  // without repeated rows only if learn_all.
  std::shared_ptr<const PackDictionaries> dictionaries;
  bool learn = false;
  bool learn_all = false;
  bool compare = true;  // what came out of unpacking, byte by byte; its checksum is always compared
  // Frames of the gear format with these predictors, for K and for V; empty: our own parts.
  std::vector<store::GearPredictorSet> gear;  // [2]
  bool keep_restored = false;                 // of mode full: what came out of unpacking
  // kRestore: where the raw strips of each page go.
  std::vector<PageSlot> slots;

  // What came of it, per page.
  struct Packed {
    PackedStrips strips;
    std::vector<std::byte> restored;  // the page as it was unpacked again
    Status status;
  };
  std::vector<Packed> packed;
  Status status;  // of the whole job
  double pack_us = 0;
  double unpack_us = 0;
  uint64_t unpacked_bytes = 0;
};

class PackWork {
 public:
  virtual ~PackWork() = default;
  // Does the job and fills what came of it. A failure is the job's status, or a page's; throwing is
  // a failure of the job. Called by several threads at once, for different jobs.
  virtual void Run(const CacheShape& shape, PackJob& job) = 0;
};

// With the codecs of src/store. Every strip is packed, unpacked again and compared. One for all.
PackWork* CodecPackWork();

}  // namespace varve

#endif  // VARVE_CACHE_PACK_WORK_H_

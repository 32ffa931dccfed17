// Packing: which sealed pages are packed, and how attention finds them again.
//
//   EndStep   Advance hands the cold pages of a layer to the workers, in groups, and installs what
//             has come back: the raw page is given up only now, after its packed bytes have been
//             unpacked and compared
//   Attend    Prepare restores pages of the layer while the decode cache has room for them; what
//             is not restored is unpacked strip by strip by the thread that reads it. Workers
//             restore pages of the next packed layer meanwhile
//
// The decode cache is a number of raw pages beside their packed form: layer_cache= of each layer's
// own, and decode_cache= that all layers share. It never holds more than
// packing saves, so that store holds no more than full would. Every step reads all pages in
// the same order, where throwing out the page that was not used for longest would never hit: a page
// makes room only if the last two steps have not read it.
//
// With a spill file, packed bytes beyond keep_mib go there, those that were packed first; every
// step reads all of them, so that none is colder than another. Once a layer has been read its
// spilled pages are forgotten again.
//
// Packing changes no value and no decision, only bytes: results do not depend on what the workers
// have got done. Owned by the cache; its own calls are not thread-safe. Split over packing.cc and,
// for the reading side, packing_read.cc.

#ifndef VARVE_CACHE_PACKING_H_
#define VARVE_CACHE_PACKING_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/pack_workers.h"
#include "pages/page_store.h"
#include "pages/sequence.h"
#include "plan/resolved_plan.h"
#include "varve/cache.h"
#include "varve/executor.h"

namespace varve {

class Packing {
 public:
  // `work` is what the threads do: CodecPackWork(). Nothing is owned; all outlive this.
  Packing(const CacheShape& shape, const std::vector<LayerPlan>& plans,
          const PackSettings& settings, PageStore* store, Executor* executor, PackWork* work);
  ~Packing();

  bool active() const { return stats_.layers > 0; }

  // After a step of `tokens` tokens of this sequence.
  void Advance(const Sequence& sequence, int tokens);
  // Outside of steps: pages of this sequence have changed their form. The sequence is not fed.
  void AdvanceAtRest(const Sequence& sequence);
  // A layer is about to be read by these sequences. Fails if a page cannot be restored.
  Status Prepare(int layer, std::span<const Sequence* const> sequences);
  // It has been read, with this result.
  void Finish(int layer, const Status& read);
  // A step has ended or was given up.
  void EndStep();
  // Installs what workers have done, and gives up what was restored for one pass only.
  void Collect();

  // Installs what is done and gives the decode cache up, where a step finds no room.
  void MakeRoomForStep();

  // Waits for the workers and installs all that they have.
  void Wait();
  // The page has its raw strips for good again, ready to be cut and to grow.
  Status UnpackForGood(Page* page);

  // Dictionaries of packed pages that come from a file, for the accounts.
  void AddDictionaries(std::span<const std::shared_ptr<const store::Dictionary>> dictionaries) {
    all_dictionaries_.insert(all_dictionaries_.end(), dictionaries.begin(), dictionaries.end());
    dictionary_bytes_ = DictionaryBytes();
  }

  uint64_t pages_packed() const { return stats_.pages_packed; }
  uint64_t dictionary_bytes() const { return dictionary_bytes_; }
  void AddTo(LosslessStats* stats) const;
  // What packing did to a layer, of whose tables these are all.
  void AddTo(int layer, std::span<const LayerTable* const> tables, LayerReport* report) const;

 private:
  // Pages of one layer in one pair of rungs: they are alike, and share dictionaries.
  using Kind = std::tuple<int, const Rung*, const Rung*>;
  static Kind KindOf(const Page& page) {
    return {page.layer, page.parts[0].rung, page.parts[1].rung};
  }
  struct Family {
    std::shared_ptr<const PackDictionaries> dictionaries;
    bool begun = false;     // the first group has been handed out
    bool learning = false;  // a worker makes the dictionaries
    int64_t learned_tokens = 0;
  };
  // Its cold pages in one table.
  struct ColdPages {
    std::vector<PageRef> fresh;  // to be packed
    std::vector<PageRef> all;    // those, and what is packed already
    int64_t fresh_tokens = 0;
    int64_t all_tokens = 0;
    // Leaves out what does not fill a block yet, the youngest.
    void KeepWholeBlocks(int64_t block_pages);
  };

  PackWorkers& workers();  // started when first needed
  bool ShouldLearn(const Family& family, int64_t cold_tokens) const;
  void HandOutAll(const Sequence& sequence);
  void HandOut(int layer, const LayerTable& table);
  void HandOutFamily(const PackRule& rule, Family& family, const ColdPages& cold);
  void Install();
  void TrimHeap();
  void ReleaseStreamed();
  // Of all dictionaries that some page or the next group needs, each once.
  uint64_t DictionaryBytes() const;
  void InstallPacked(PackJob& job);
  void InstallRestored(PackJob& job);
  void GiveUp(PackJob& job);
  // What raw strips beside packed ones may take: the plan's pages, and what packing saves.
  uint64_t DecodeCacheBytes(const Page& page) const;
  uint64_t BytesSaved() const;
  // Gives raw strips up that packing no longer pays for.
  void ShrinkDecodeCache();
  // True if there is room for one more restored page like this one: within what packing saves, and
  // within what its layer may keep or all layers share.
  bool HasRoom(const Page& page) const;
  // Makes it, if it can.
  bool MakeRoom(const Page& page);
  // Slots that pages do not have yet.
  class RawSlots;
  // Unpacks all of them and gives them to their pages, or fails.
  Status Restore(RawSlots* restoring);
  void Prefetch(int layer, std::span<const Sequence* const> sequences);
  // Takes slots for pages of the job's layer, as many as there is room for.
  void FillRestore(std::span<const Sequence* const> sequences, PackJob& job);

  const CacheShape shape_;
  const std::vector<LayerPlan>& plans_;
  const PackSettings settings_;
  PageStore* store_;
  Executor* executor_;
  PackWork* work_;
  std::unique_ptr<PackWorkers> workers_;
  std::map<Kind, Family> families_;
  std::vector<std::weak_ptr<const store::Dictionary>> all_dictionaries_;
  std::vector<PageRef> streamed_;          // restored for the layer that is being read
  std::vector<const Page*> spilled_read_;  // of the layer that is being read
  LosslessStats stats_;
  std::vector<LayerReport> tried_;  // [num_layers], modes probe and full
  int decode_cache_pages_ = 0;      // shared ones and those of the layers
  uint64_t dictionary_bytes_ = 0;   // of the dictionaries that are in use
  size_t heap_bytes_ = 0;           // that installed jobs have freed and the heap may keep
  uint64_t step_ = 2;
  double step_wait_us_ = 0;  // of this step: stats_.wait_us tells what counts
};

}  // namespace varve

#endif  // VARVE_CACHE_PACKING_H_

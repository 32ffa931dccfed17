// FaultyPackWork: packs as ever, but damages the first page that it packs, as a bit that flips in
// memory would. The gate must notice (--fault corrupt-page).

#ifndef VARVE_CLI_GATE_FAULTY_PACK_WORK_H_
#define VARVE_CLI_GATE_FAULTY_PACK_WORK_H_

#include <atomic>

#include "cache/pack_work.h"

namespace varve::cli {

class FaultyPackWork final : public PackWork {
 public:
  void Run(const CacheShape& shape, PackJob& job) override;

 private:
  std::atomic<bool> has_struck_ = false;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_GATE_FAULTY_PACK_WORK_H_

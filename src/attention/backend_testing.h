// A back end for tests of what stands above it: it computes nothing and notes what it was asked
// for.

#ifndef VARVE_ATTENTION_BACKEND_TESTING_H_
#define VARVE_ATTENTION_BACKEND_TESTING_H_

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "pages/page_pool.h"

namespace varve {

class NotingBackend final : public Backend {
 public:
  PageMemory* memory() override { return SystemPageMemory(); }
  Status Append(int, std::span<const AppendJob>) override { return Status(); }
  void Encode(std::span<EncodeJob> jobs) override {
    batches.push_back(jobs.size());
    for (EncodeJob& job : jobs) {
      std::memset(job.to->raw(), 0, job.to->bytes);
      if (fails) job.status = DataLoss("damaged");
    }
  }
  Status Attend(int, const LayerSpaces&, std::span<const AttentionRequest>, const AttendOptions&,
                AttentionObserver*) override {
    return Status();
  }
  size_t scratch_bytes() const override { return 0; }
  uint64_t replaced() const override { return 0; }
  UnpackedStrips unpacked() const override { return {}; }

  std::vector<size_t> batches;  // pages of every Encode
  bool fails = false;           // every page, as if its packed bytes were damaged
};

}  // namespace varve

#endif  // VARVE_ATTENTION_BACKEND_TESTING_H_

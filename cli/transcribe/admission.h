// Admission: how many bytes may be under way at once. Who needs more than is left waits until
// others are done. It counts estimates and limits nothing that runs. Any thread may call.

#ifndef VARVE_CLI_TRANSCRIBE_ADMISSION_H_
#define VARVE_CLI_TRANSCRIBE_ADMISSION_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

#include "varve/status.h"

namespace varve::cli {

class Admission {
 public:
  // 0: everybody may.
  explicit Admission(uint64_t max_bytes) : max_bytes_(max_bytes) {}

  // Waits for the bytes. kFailedPrecondition if they can never be had; `name` is for the message.
  Status Enter(const std::string& name, uint64_t bytes);
  void Leave(uint64_t bytes);

 private:
  const uint64_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t bytes_ = 0;
};

}  // namespace varve::cli

#endif  // VARVE_CLI_TRANSCRIBE_ADMISSION_H_

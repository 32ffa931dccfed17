// AttendBatch: the requests of an Attend as the kernel takes them: a table of page records for
// every query. Rows that a query must not see (those behind it, or before its window) are not live
// in its records; pages without a row that it may see are left out. Or a prompt: one table for all
// its queries, and the rows that each of them sees.

#ifndef VARVE_CUDA_BACKEND_ATTEND_BATCH_H_
#define VARVE_CUDA_BACKEND_ATTEND_BATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "cuda/device_pages.h"
#include "cuda/device_prompt.h"

namespace varve::cuda {

struct AttendBatch {
  std::vector<DevicePage> pages;     // of all queries, one after the other
  std::vector<int32_t> page_begin;   // [num_queries + 1]
  std::vector<int32_t> first_page;   // [num_queries]: where a query's records begin in its table
  std::vector<VisibleRows> visible;  // [num_queries] of a prompt, or empty
  int max_pages = 0;                 // of a query
  uint32_t key_rungs = 0;            // bits of DeviceRung
  uint32_t value_rungs = 0;
  bool pure_pages = true;  // as DeviceAttention::pure_pages

  bool is_prompt() const { return !visible.empty(); }
  int num_queries() const {
    return static_cast<int>(is_prompt() ? visible.size() : first_page.size());
  }
};

// Clears *batch and fills it. Every page is raw.
void FillBatch(std::span<const AttentionRequest> requests, const AttendOptions& options,
               AttendBatch* batch);

// The same for the queries of one request, as a prompt.
void FillPrompt(const AttentionRequest& request, const AttendOptions& options, int page_tokens,
                AttendBatch* batch);

// Tells `observer` the masses of every request, from what the kernel has written:
// page_lse [records of the batch, num_heads] and lse [queries, num_heads].
void ReportMasses(int layer, std::span<const AttentionRequest> requests, const AttendBatch& batch,
                  int num_heads, const float* page_lse, const float* lse,
                  AttentionObserver* observer);

}  // namespace varve::cuda

#endif  // VARVE_CUDA_BACKEND_ATTEND_BATCH_H_

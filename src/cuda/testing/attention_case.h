// A batch of sequences with random rows, encoded by the rungs of the CPU, and what attention over
// it must give: in double precision, on the rows as the CPU decodes them.

#ifndef VARVE_CUDA_TESTING_ATTENTION_CASE_H_
#define VARVE_CUDA_TESTING_ATTENTION_CASE_H_

#include <cstdint>
#include <vector>

#include "cuda/device_attention.h"

namespace varve::cuda::testing {

struct PageSpec {
  DeviceRung key_rung = DeviceRung::kF16;
  DeviceRung value_rung = DeviceRung::kF16;
  int rows = 0;
  bool holes = false;  // every few rows are dead
  bool dead = false;   // all rows are
};

struct CaseSpec {
  int head_dim = 128;
  int kv_heads = 2;
  int group = 4;
  int page_tokens = 64;
  int splits = 0;
  int max_pages = 0;  // what the call promises at most; 0: what the longest sequence has
  Tiling tiling = Tiling::kAuto;
  float soft_cap = 0.0f;
  // Of pq pages: a codebook for each part and KV head.
  int pq_subspaces = 0;
  int pq_bits = 0;
  bool pq_rotated = false;
  std::vector<std::vector<PageSpec>> sequences;
  uint64_t seed = 1;
  bool compare_cpu = false;  // all pages full
  bool zero_queries = false;
  // Bytes of shared memory that a block may have, as on smaller devices; 0: what there is.
  size_t shared_per_block = 0;
};

struct CaseResult {
  double worst = 0;           // largest ||out - reference|| / ||reference|| of a head
  double rms = 0;             // ||out - reference|| / ||reference|| of all heads together
  double cpu_rms = 0;         // the same of the CPU's scalar kernels
  double worst_lse = 0;       // largest difference
  double worst_page_lse = 0;  // of pages that have a live row
  bool complete = true;       // every output has been written; dead pages have -infinity
};

// Runs the case on the device and compares.
CaseResult RunCase(const CaseSpec& spec);

// Runs cases of as many sequences and query heads in turn, several times, in one work space.
std::vector<CaseResult> RunInTurn(const std::vector<CaseSpec>& specs);

// One sequence of num_rows rows in pages of those rungs, the last one short.
std::vector<PageSpec> Pages(DeviceRung key_rung, DeviceRung value_rung, int num_rows,
                            int page_tokens, bool holes = false);

}  // namespace varve::cuda::testing

#endif  // VARVE_CUDA_TESTING_ATTENTION_CASE_H_

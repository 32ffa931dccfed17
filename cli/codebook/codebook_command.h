// `varve codebook`: sampling of rows, training of codebooks, and what one is.

#ifndef VARVE_CLI_CODEBOOK_CODEBOOK_COMMAND_H_
#define VARVE_CLI_CODEBOOK_CODEBOOK_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/codebook/codebook_samples.h"
#include "varve/status.h"

namespace varve::cli {

struct CodebookSampleOptions {
  SampleOptions sample;
  std::string folder;
};
Status SampleToFolder(const CodebookSampleOptions& options);

struct CodebookTrainOptions {
  SampleOptions sample;  // its text is empty if the samples are there
  std::string samples;   // a folder of `codebook sample`
  std::string output;
  int num_subspaces = 0;                 // -M: one size for both parts; 0: not asked for
  int bits = 0;                          // --nbits
  std::vector<std::string> key_sizes;    // --k: "64x8"
  std::vector<std::string> value_sizes;  // --v
  std::string grain = "head";
  std::string rotate = "k";  // the parts that are turned first: none, k, v, kv
  bool opq = false;
  int iterations = 25;
  uint64_t seed = 1;
};
Status TrainToFile(const CodebookTrainOptions& options);

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_CODEBOOK_COMMAND_H_

// Training of codebooks: rows in, tables of centroids out.
//
// Rows are divided by their norm, cut into sub-vectors, and each sub-space of each group gets its
// own k-means; centroids are then rounded to bytes. Sub-spaces are spread over the threads of the
// executor, one k-means per thread. The result depends on the rows, the options and the seed, never
// on the number of threads.

#ifndef VARVE_CLI_CODEBOOK_CODEBOOK_TRAINING_H_
#define VARVE_CLI_CODEBOOK_CODEBOOK_TRAINING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cli/codebook/codebook_kmeans.h"
#include "cli/codebook/codebook_rows.h"
#include "varve/codebook.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve::cli {

// MxB, as in the rung pqMxB.
struct CodebookSize {
  int num_subspaces = 0;
  int bits = 0;
  bool operator==(const CodebookSize&) const = default;
};
// "64x8".
std::string SizeText(const CodebookSize& size);
// `option` begins the message. Limits of the grammar only; CheckSize knows the dimension.
Result<CodebookSize> ParseSize(const std::string& option, const std::string& text);
Status CheckSize(const CodebookSize& size, int dim);

struct TrainingOptions {
  int iterations = 25;  // of k-means
  uint64_t seed = 1;
  RotationKind rotation = RotationKind::kNone;  // learned first, per group and size
};

// What the tables of one part are made from.
struct PartTraining {
  Part part = Part::kKey;
  int dim = 0;
  CodebookGrain grain = CodebookGrain::kHead;
  int num_groups = 0;
  std::vector<CodebookSize> sizes;
  const RowSource* rows = nullptr;  // not owned
};

// Called between pieces of work with what is done of TrainingWork; false ends the training.
using TrainingProgress = std::function<bool(double done)>;
double TrainingWork(const PartTraining& training, const TrainingOptions& options);

// The rows of a group that a table learns from: all, or this many, spread over the others.
size_t MostTrainingRows(int bits);

// The tables of all sizes. Errors: kInvalidArgument for a size that does not fit, fewer rows than
// centroids, a row with a value that is not finite; kFailedPrecondition when `progress` ended it.
Result<std::vector<CodebookTable>> TrainTables(const PartTraining& training,
                                               const TrainingOptions& options, Executor& executor,
                                               const TrainingProgress& progress);

// For benchmarks of shapes that no model has: a codebook for any layers and heads whose groups all
// have the tables that were trained on these rows. Its fingerprint is 0.
struct SharedRows {
  Part part = Part::kKey;
  int dim = 0;
  std::span<const float> rows;  // [num_rows, dim]
  std::vector<CodebookSize> sizes;
};
Result<Codebook> TrainOnRows(std::span<const SharedRows> parts, int num_layers, int num_kv_heads,
                             CodebookGrain grain, const TrainingOptions& options,
                             Executor& executor);

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_CODEBOOK_TRAINING_H_

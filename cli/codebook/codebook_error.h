// What a codebook loses on rows that it may not have seen.

#ifndef VARVE_CLI_CODEBOOK_CODEBOOK_ERROR_H_
#define VARVE_CLI_CODEBOOK_CODEBOOK_ERROR_H_

#include "cli/codebook/codebook_samples.h"
#include "varve/codebook.h"
#include "varve/executor.h"
#include "varve/status.h"

namespace varve::cli {

// Mean over rows of |x - decode(encode(x))|^2 / |x|^2, over all groups; at most 16384 rows of each.
// Refuses samples of another shape.
Result<double> RelativeError(const Codebook& codebook, const CodebookTable& table,
                             const KvSamples& samples, Executor& executor);

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_CODEBOOK_ERROR_H_

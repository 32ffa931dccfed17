// Rows as product quantization sees them: of length 1, and rotated where a table has a rotation.

#ifndef VARVE_CLI_CODEBOOK_CODEBOOK_ROWS_H_
#define VARVE_CLI_CODEBOOK_CODEBOOK_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "varve/executor.h"
#include "varve/status.h"

namespace varve::cli {

// Rows to learn from. Reads may run at once.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual size_t NumRows(int group) const = 0;
  // [dim] f32, as the cache has them.
  virtual void ReadRow(int group, size_t row, float* to) const = 0;
  // "k of layer 3, KV head 1", for messages.
  virtual std::string GroupName(int group) const = 0;
};

// Rows of one group, of length 1.
struct UnitRows {
  std::vector<float> values;  // [count, dim]
  size_t count = 0;
};

// At most `wanted` rows of a group, row i from the i-th of as many equal stretches: every place of
// the text is there. Rows of zeros have no direction and are left out. kInvalidArgument for a value
// that is not finite.
Result<UnitRows> ReadUnitRows(const RowSource& rows, int group, size_t dim, size_t wanted,
                              uint64_t seed);

// At most `count` of the rows, evenly.
UnitRows Thin(const UnitRows& rows, size_t count, size_t dim);

// rotation [dim, dim] f16 bits, row major.
UnitRows Rotate(const UnitRows& rows, const uint16_t* rotation, size_t dim, Executor& executor);

}  // namespace varve::cli

#endif  // VARVE_CLI_CODEBOOK_CODEBOOK_ROWS_H_

// How much of a model each weight type has: counted tensor by tensor, then shown as a table or
// JSON.

#ifndef VARVE_CLI_INSPECT_TYPE_SHARES_H_
#define VARVE_CLI_INSPECT_TYPE_SHARES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/kernels/weights.h"

namespace varve::cli {

// Tensors of one type together.
struct TypeShare {
  WeightType type = WeightType::kF32;
  size_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

class TypeShares {
 public:
  void Add(WeightType type, uint64_t parameters, uint64_t bytes);

  uint64_t parameters() const;
  uint64_t bytes() const;
  // Those that there are, the most bytes first.
  std::vector<TypeShare> Sorted() const;
  std::string RenderTable(bool colour) const;  // "" if there is nothing
  nlohmann::ordered_json ToJson() const;       // [{"type", "tensors", "parameters", "bytes"}]

 private:
  std::array<TypeShare, kNumWeightTypes> shares_ = {};
};

// "1.24 B", "596 M", "14.2 M", "832"
std::string HumanCount(uint64_t count);

}  // namespace varve::cli

#endif  // VARVE_CLI_INSPECT_TYPE_SHARES_H_

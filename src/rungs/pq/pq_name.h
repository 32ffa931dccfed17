// Names of pq rungs: pqMxB (M sub-spaces of B bits), and the aliases pq4, pq3, pq2 by bits per
// value, which stand for codes of 8, 6 and 4 bits for every two channels.

#ifndef VARVE_RUNGS_PQ_PQ_NAME_H_
#define VARVE_RUNGS_PQ_PQ_NAME_H_

#include <optional>
#include <string>
#include <string_view>

namespace varve {

struct PqSize {
  int subspaces = 0;  // 1 … 512
  int bits = 0;       // 4 … 12
  bool operator==(const PqSize&) const = default;
};

// pqMxB or an alias. `dim` is what an alias refers to. None if it is not the name of a pq rung.
std::optional<PqSize> ParsePqName(std::string_view name, int dim);

inline bool IsPqName(std::string_view name) { return ParsePqName(name, 2).has_value(); }

std::string PqName(const PqSize& size);

}  // namespace varve

#endif  // VARVE_RUNGS_PQ_PQ_NAME_H_

#include "cli/inspect/type_shares.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "cli/report/output.h"

namespace varve::cli {

void TypeShares::Add(WeightType type, uint64_t parameters, uint64_t bytes) {
  TypeShare& share = shares_[static_cast<size_t>(type)];
  share.type = type;
  ++share.tensors;
  share.parameters += parameters;
  share.bytes += bytes;
}

uint64_t TypeShares::parameters() const {
  uint64_t sum = 0;
  for (const TypeShare& share : shares_) sum += share.parameters;
  return sum;
}

uint64_t TypeShares::bytes() const {
  uint64_t sum = 0;
  for (const TypeShare& share : shares_) sum += share.bytes;
  return sum;
}

std::vector<TypeShare> TypeShares::Sorted() const {
  std::vector<TypeShare> sorted;
  std::copy_if(shares_.begin(), shares_.end(), std::back_inserter(sorted),
               [](const TypeShare& share) { return share.tensors > 0; });
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
  return sorted;
}

std::string TypeShares::RenderTable(bool colour) const {
  const std::vector<TypeShare> sorted = Sorted();
  if (sorted.empty()) return "";
  TextTable table({"weights", ">tensors", ">parameters", ">bytes", ">share", ">bits/value"});
  for (const TypeShare& share : sorted) {
    const auto share_bytes = static_cast<double>(share.bytes);
    table.AddRow({InfoOf(share.type).name, fmt::format("{}", share.tensors),
                  HumanCount(share.parameters), HumanBytes(share_bytes),
                  fmt::format("{:.1f} %", 100 * share_bytes / static_cast<double>(bytes())),
                  fmt::format("{:.2f}", 8 * share_bytes / static_cast<double>(share.parameters))});
  }
  return table.Render(colour);
}

nlohmann::ordered_json TypeShares::ToJson() const {
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  for (const TypeShare& share : Sorted()) {
    types.push_back({{"type", InfoOf(share.type).name},
                     {"tensors", share.tensors},
                     {"parameters", share.parameters},
                     {"bytes", share.bytes}});
  }
  return types;
}

std::string HumanCount(uint64_t count) {
  static constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  auto value = static_cast<double>(count);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, kUnits[unit]);
}

}  // namespace varve::cli

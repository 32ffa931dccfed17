#include "runtime/gguf/split_name.h"

#include <charconv>

#include <fmt/format.h>

#include "base/quoted.h"
#include "runtime/gguf/gguf_types.h"
#include "runtime/gguf/gguf_values.h"

namespace varve {
namespace {

constexpr std::string_view kOf = "-of-";
constexpr std::string_view kExtension = ".gguf";
constexpr size_t kDigits = 5;
constexpr int64_t kMaxParts = 99999;

Status Lies(const std::string& name, const std::string& message) {
  return Status(StatusCode::kDataLoss, fmt::format("{}: {}", name, message));
}

// Takes exactly five digits from the end of `text`.
std::optional<int64_t> TakeNumber(std::string_view* text) {
  if (text->size() < kDigits) return std::nullopt;
  const std::string_view digits = text->substr(text->size() - kDigits);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + kDigits, number);
  if (error != std::errc() || end != digits.data() + kDigits || number < 1) return std::nullopt;
  text->remove_suffix(kDigits);
  return number;
}

bool TakeSuffix(std::string_view* text, std::string_view suffix) {
  if (!text->ends_with(suffix)) return false;
  text->remove_suffix(suffix.size());
  return true;
}

// The missing key leaves *value as it is.
Status ReadKey(const GgufPart& part, const std::string& name, std::string_view key, int64_t min,
               int64_t max, int64_t* value) {
  const std::optional<size_t> index = part.keys.Find(key);
  if (!index) return Status();
  const std::optional<int64_t> stored = IntegerOf(part.values[*index]);
  if (!stored || *stored < min || *stored > max) {
    return Lies(name, fmt::format("key {}: {}, expected an integer from {} to {}", Quoted(key),
                                  ValueText(part.values[*index]), min, max));
  }
  *value = *stored;
  return Status();
}

}  // namespace

std::optional<SplitName> ParseSplitName(std::string_view path) {
  if (!TakeSuffix(&path, kExtension)) return std::nullopt;
  const std::optional<int64_t> count = TakeNumber(&path);
  if (!count || !TakeSuffix(&path, kOf)) return std::nullopt;
  const std::optional<int64_t> number = TakeNumber(&path);
  if (!number || *number > *count || !TakeSuffix(&path, "-")) return std::nullopt;
  return SplitName{std::string(path), *number, *count};
}

std::string PartName(std::string_view prefix, int64_t number, int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, number, count);
}

Result<SplitKeys> ReadSplitKeys(const GgufPart& part, const std::string& name) {
  SplitKeys keys;
  VARVE_RETURN_IF_ERROR(ReadKey(part, name, "split.count", 0, kMaxParts, &keys.count));
  if (keys.count == 0) keys.count = 1;  // what some writers say of a file that is whole
  VARVE_RETURN_IF_ERROR(ReadKey(part, name, "split.no", 0, keys.count - 1, &keys.number));
  VARVE_RETURN_IF_ERROR(
      ReadKey(part, name, "split.tensors.count", 0, INT64_MAX, &keys.num_tensors));
  return keys;
}

Status CheckPart(const SplitKeys& part, int64_t number, const SplitKeys& first,
                 const std::string& name) {
  if (part.count != first.count) {
    return Lies(name,
                fmt::format("split.count {}, the first part says {}", part.count, first.count));
  }
  if (part.number != number) {
    return Lies(name, fmt::format("split.no {}, its name says {}", part.number, number));
  }
  if (part.num_tensors != first.num_tensors) {
    return Lies(name, fmt::format("split.tensors.count {}, the first part says {}",
                                  part.num_tensors, first.num_tensors));
  }
  return Status();
}

}  // namespace varve

// ConfigReader: the keys "{architecture}.…" of a model file, with ranges. A part of llama_config.cc
// and rope_config.cc; everything that it refuses is refused by key, value and limit.

#ifndef VARVE_RUNTIME_LLAMA_CONFIG_READER_H_
#define VARVE_RUNTIME_LLAMA_CONFIG_READER_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "runtime/gguf/gguf_file.h"
#include "runtime/llama/llama_config.h"
#include "varve/status.h"

namespace varve {

inline constexpr int64_t kMaxContext = int64_t{1} << 40;
// At base 1 the logarithm of YaRN's ramp vanishes.
inline constexpr double kMinRopeBase = 1.000001;
inline constexpr double kMaxRopeBase = 1e12;

class ConfigReader {
 public:
  ConfigReader(const GgufFile& file, std::string_view architecture)
      : file_(file), prefix_(fmt::format("{}.", architecture)) {}

  std::string Key(std::string_view name) const { return prefix_ + std::string(name); }
  const GgufFile& file() const { return file_; }
  bool Has(std::string_view name) const { return file_.Find(Key(name)) != nullptr; }

  // A number, or an array with the same number for every layer.
  template <typename T>
  Status Int(std::string_view name, int64_t min, int64_t max, T* out) const {
    const std::string key = Key(name);
    const GgufValue* value = file_.Find(key);
    if (value != nullptr && value->type == GgufType::kArray) return Array(key, min, max, out);
    VARVE_ASSIGN_OR_RETURN(const int64_t number, file_.GetInt(key, min, max));
    *out = static_cast<T>(number);
    return {};
  }
  template <typename T>
  Status OptionalInt(std::string_view name, int64_t min, int64_t max, T* out) const {
    return Has(name) ? Int(name, min, max, out) : Status();
  }

  // A finite number in [min, max].
  template <typename T>
  Status Float(std::string_view name, double min, double max, T* out) const {
    const std::string key = Key(name);
    VARVE_ASSIGN_OR_RETURN(const double number, file_.GetFloat(key));
    if (!(number >= min && number <= max)) {
      return InvalidArgument(fmt::format("{} {} not in [{}, {}]", key, number, min, max));
    }
    *out = static_cast<T>(number);
    return {};
  }
  template <typename T>
  Status OptionalFloat(std::string_view name, double min, double max, T* out) const {
    return Has(name) ? Float(name, min, max, out) : Status();
  }

  // A key that would change the result if it were anything but `expected`.
  Status OnlyFloat(std::string_view name, double expected) const {
    double value = expected;
    VARVE_RETURN_IF_ERROR(OptionalFloat(name, std::numeric_limits<double>::lowest(),
                                        std::numeric_limits<double>::max(), &value));
    if (value == expected) return {};
    return Unimplemented(fmt::format("{} {}: only {} is built in", Key(name), value, expected));
  }

 private:
  template <typename T>
  Status Array(const std::string& key, int64_t min, int64_t max, T* out) const {
    VARVE_ASSIGN_OR_RETURN(const std::vector<int32_t> numbers, file_.GetInts(key));
    if (numbers.empty()) return InvalidArgument(fmt::format("{}: an empty array", key));
    const int32_t first = numbers.front();
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] != first) {
        return Unimplemented(fmt::format("{}[{}] {} != [0] {}: layers that differ are not built in",
                                         key, i, numbers[i], first));
      }
    }
    if (first < min || first > max) {
      return InvalidArgument(fmt::format("{}[0] {} not in [{}, {}]", key, first, min, max));
    }
    *out = static_cast<T>(first);
    return {};
  }

  const GgufFile& file_;
  std::string prefix_;
};

// What is said about rotary embedding; head_dim and context must be known. Also reads the tensor
// rope_freqs.weight.
Status ReadRope(const ConfigReader& read, LlamaConfig* config);

}  // namespace varve

#endif  // VARVE_RUNTIME_LLAMA_CONFIG_READER_H_

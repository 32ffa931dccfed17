#include "cli/codebook/codebook_samples.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "base/align.h"
#include "base/half.h"
#include "base/utf8.h"
#include "cli/available_memory.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "runtime/gguf/gguf_fingerprint.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;
using store::LaneType;

constexpr int64_t kMaxSampleContext = 4096;
// A token has a byte at least and rarely more than this; windows of a long text are cut from
// stretches of so many bytes per token, and its other bytes are never tokenized.
constexpr size_t kBytesPerToken = 16;
constexpr const char* kSamplesFile = "samples.json";

// Tokens of all windows; of a text that is too short for so many, all that there are.
std::vector<std::vector<int32_t>> CutText(const Tokenizer& tokenizer, std::string_view text,
                                          int64_t tokens, int64_t ctx) {
  std::vector<std::vector<int32_t>> windows;
  const size_t count = static_cast<size_t>(CeilDiv(tokens, ctx));
  const size_t bytes = static_cast<size_t>(ctx) * kBytesPerToken;
  // Where there is not that much text for every window, all of it is tokenized and shared out.
  if (text.size() / count < bytes) {
    const std::vector<int32_t> all = tokenizer.Encode(text, {});
    const size_t size = std::min(static_cast<size_t>(ctx), all.size());
    const size_t wanted = std::min(count, size == 0 ? 0 : CeilDiv(all.size(), size));
    for (size_t w = 0; w < wanted; ++w) {
      const size_t begin = w * all.size() / wanted;
      const size_t end = std::min((w + 1) * all.size() / wanted, begin + size);
      windows.emplace_back(all.begin() + static_cast<ptrdiff_t>(begin),
                           all.begin() + static_cast<ptrdiff_t>(end));
    }
  } else {
    for (size_t start : WindowStarts(text.size(), bytes, count)) {
      while (start < text.size() && IsUtf8Continuation(text[start])) ++start;
      windows.push_back(tokenizer.Encode(text.substr(start, bytes), {}));
      if (static_cast<int64_t>(windows.back().size()) > ctx) {
        windows.back().resize(static_cast<size_t>(ctx));
      }
    }
  }
  int64_t left = tokens;
  for (std::vector<int32_t>& window : windows) {
    window.resize(static_cast<size_t>(std::min<int64_t>(left, std::ssize(window))));
    left -= std::ssize(window);
  }
  std::erase_if(windows, [](const std::vector<int32_t>& window) { return window.empty(); });
  return windows;
}

uint64_t RowBytes(const CacheShape& shape) {
  return uint64_t{2} * static_cast<uint64_t>(shape.num_layers) *
         static_cast<uint64_t>(shape.num_kv_heads) *
         static_cast<uint64_t>(shape.key_dim + shape.value_dim);
}

void AppendRows(std::vector<DumpRows> window, std::vector<DumpRows>& all) {
  if (all.empty()) {
    all = std::move(window);
    return;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].num_tokens += window[i].num_tokens;
    all[i].bytes.insert(all[i].bytes.end(), window[i].bytes.begin(), window[i].bytes.end());
  }
}

// Pieces of one layer and part, in the order of their tokens, behind each other.
Status AppendPiece(DumpRows piece, KvSamples& samples) {
  const size_t at = 2 * static_cast<size_t>(piece.layer) + (piece.part == Part::kKey ? 0 : 1);
  if (at >= samples.rows.size()) samples.rows.resize(at / 2 * 2 + 2);
  DumpRows& rows = samples.rows[at];
  if (rows.num_heads == 0) {
    rows = std::move(piece);
    return Status();
  }
  if (rows.num_heads != piece.num_heads || rows.head_dim != piece.head_dim ||
      rows.lane != piece.lane) {
    return InvalidArgument(fmt::format(
        "layer {}: pieces of {} x {} {} and of {} x {} {}", piece.layer, rows.num_heads,
        rows.head_dim, LaneName(rows.lane), piece.num_heads, piece.head_dim, LaneName(piece.lane)));
  }
  rows.num_tokens += piece.num_tokens;
  rows.bytes.insert(rows.bytes.end(), piece.bytes.begin(), piece.bytes.end());
  return Status();
}

Status CheckPieces(const KvSamples& samples) {
  for (size_t i = 0; i < samples.rows.size(); ++i) {
    const DumpRows& rows = samples.rows[i];
    const DumpRows& first = samples.rows[i % 2];
    if (rows.num_heads == 0) return InvalidArgument(fmt::format("layer {} is missing", i / 2));
    if (rows.num_heads != first.num_heads || rows.head_dim != first.head_dim ||
        rows.num_tokens != first.num_tokens) {
      return InvalidArgument(fmt::format("layer {} has {} tokens of {} x {}, layer 0 {} of {} x {}",
                                         i / 2, rows.num_tokens, rows.num_heads, rows.head_dim,
                                         first.num_tokens, first.num_heads, first.head_dim));
    }
  }
  return Status();
}

// What is not there, or is of another type, stays as it is: it is for people, but for the
// fingerprint.
Status ReadOrigin(const fs::path& path, KvSamples& samples) {
  std::error_code error;
  if (!fs::exists(path, error)) return Status();
  std::ifstream file(path, std::ios::binary);
  std::stringstream content;
  content << file.rdbuf();
  const nlohmann::json json = nlohmann::json::parse(content.str(), nullptr, false);
  const std::string name = path.string();
  if (!json.is_object()) return InvalidArgument(fmt::format("{}: not a JSON object", name));
  const auto text = [&](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  samples.model_name = text("model");
  samples.text_name = text("text");
  const auto ctx = json.find("ctx");
  if (ctx != json.end() && ctx->is_number_integer()) samples.ctx = ctx->get<int64_t>();
  const std::string fingerprint = text("model_fingerprint");
  size_t used = 0;
  try {
    samples.model_fingerprint = std::stoull(fingerprint, &used, 16);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 16 && fingerprint.size() == 16) return Status();
  return InvalidArgument(
      fmt::format("{}: model_fingerprint \"{}\" is not 16 hex digits", name, fingerprint));
}

}  // namespace

std::vector<size_t> WindowStarts(size_t size, size_t bytes, size_t count) {
  std::vector<size_t> starts;
  for (size_t w = 0; w < count; ++w) {
    // In steps that do not overflow: size is that of a text in memory, count at most 2^24.
    const size_t room = size - bytes;
    starts.push_back(count == 1 ? 0
                                : room / (count - 1) * w + room % (count - 1) * w / (count - 1));
  }
  return starts;
}

Result<KvSamples> SampleModel(const SampleOptions& options) {
  VARVE_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model));
  VARVE_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.text));
  KvSamples samples;
  samples.model_name = model.name;
  samples.model_fingerprint = ModelFingerprint(*model.file);
  samples.text_name = options.text == "-" ? "stdin" : fs::path(options.text).filename().string();
  const int64_t context = model.model->context();
  samples.ctx = std::min(options.ctx > 0 ? options.ctx : std::min(context, kMaxSampleContext),
                         options.tokens);
  if (samples.ctx > context) {
    WriteNote(
        fmt::format("varve: --ctx {} is beyond the context of {} that the model was made for\n",
                    samples.ctx, context));
  }
  const std::vector<std::vector<int32_t>> windows =
      CutText(*model.tokenizer, text, options.tokens, samples.ctx);
  for (const std::vector<int32_t>& window : windows) samples.num_tokens += std::ssize(window);
  if (text.empty() || samples.num_tokens == 0) {
    return InvalidArgument(fmt::format("-f \"{}\": the text is empty", options.text));
  }
  if (samples.num_tokens < options.tokens) {
    WriteNote(
        fmt::format("varve: --tokens {}: the text gives {}\n", options.tokens, samples.num_tokens));
  }
  const CacheShape& shape = model.model->cache_shape();
  const uint64_t row_bytes = RowBytes(shape);
  // The rows, and a window of them in the cache and on its way here.
  VARVE_RETURN_IF_ERROR(
      CheckMemory(fmt::format("--tokens {}: the rows of {} tokens and a window of {}",
                              options.tokens, samples.num_tokens, samples.ctx),
                  row_bytes * static_cast<uint64_t>(samples.num_tokens + 2 * samples.ctx)));
  samples.num_layers = shape.num_layers;
  samples.num_kv_heads = shape.num_kv_heads;
  samples.key_dim = shape.key_dim;
  samples.value_dim = shape.value_dim;
  const std::unique_ptr<Executor> executor = MakeThreadPool(options.threads);
  const InterruptScope interrupt;
  Progress progress("sample", static_cast<double>(samples.num_tokens));
  int64_t before = 0;
  for (const std::vector<int32_t>& window : windows) {
    Result<std::vector<DumpRows>> rows =
        DumpModel(model, *executor, window, LaneType::kF16, [&](int64_t done) {
          progress.Update(static_cast<double>(before + done));
          return !InterruptScope::interrupted();
        });
    if (!rows.ok()) return rows.status();
    AppendRows(std::move(*rows), samples.rows);
    before += std::ssize(window);
  }
  return samples;
}

Status WriteSamples(const KvSamples& samples, const std::string& folder) {
  VARVE_RETURN_IF_ERROR(WriteDump(folder, samples.rows, samples.ctx, samples.model_name));
  const nlohmann::ordered_json json = {
      {"model", samples.model_name},
      {"model_fingerprint", fmt::format("{:016x}", samples.model_fingerprint)},
      {"text", samples.text_name},
      {"tokens", samples.num_tokens},
      {"ctx", samples.ctx}};
  const fs::path path = fs::path(folder) / kSamplesFile;
  // Text that is no UTF-8 must not throw.
  return WriteText(path.string(),
                   json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Result<KvSamples> ReadSamples(const std::string& folder) {
  VARVE_ASSIGN_OR_RETURN(ReadDumpResult dump, ReadDump(folder));
  if (!dump.failures.empty()) {
    return InvalidArgument(fmt::format("{} of the pieces of {} cannot be used, the first: {}",
                                       dump.failures.size(), folder, dump.failures[0]));
  }
  KvSamples samples;
  const auto named = [&](const Status& status) {
    return InvalidArgument(fmt::format("{}: {}", folder, status.message()));
  };
  for (DumpPiece& piece : dump.pieces) {
    samples.ctx = std::max(samples.ctx, piece.keys.num_tokens);
    for (DumpRows* rows : {&piece.keys, &piece.values}) {
      if (rows->layer >= 1024) {
        return named(InvalidArgument(fmt::format("layer {} is not in 0 … 1023", rows->layer)));
      }
      const Status status = AppendPiece(std::move(*rows), samples);
      if (!status.ok()) return named(status);
    }
  }
  const Status status = CheckPieces(samples);
  if (!status.ok()) return named(status);
  samples.num_layers = static_cast<int>(samples.rows.size() / 2);
  samples.num_kv_heads = samples.rows[0].num_heads;
  samples.key_dim = samples.rows[0].head_dim;
  samples.value_dim = samples.rows[1].head_dim;
  samples.num_tokens = samples.rows[0].num_tokens;
  VARVE_RETURN_IF_ERROR(ReadOrigin(fs::path(folder) / kSamplesFile, samples));
  return samples;
}

size_t SampleRows::NumRows(int /*group*/) const {
  const size_t tokens = static_cast<size_t>(samples_.num_tokens);
  if (grain_ == CodebookGrain::kHead) return tokens;
  const size_t heads = tokens * static_cast<size_t>(samples_.num_kv_heads);
  return grain_ == CodebookGrain::kLayer ? heads : heads * static_cast<size_t>(samples_.num_layers);
}

void SampleRows::ReadRow(int group, size_t row, float* to) const {
  const size_t heads = static_cast<size_t>(samples_.num_kv_heads);
  const size_t tokens = static_cast<size_t>(samples_.num_tokens);
  size_t layer = static_cast<size_t>(group), head = row % heads, token = row / heads;
  if (grain_ == CodebookGrain::kHead) {
    layer = static_cast<size_t>(group) / heads;
    head = static_cast<size_t>(group) % heads;
    token = row;
  } else if (grain_ == CodebookGrain::kModel) {
    layer = row / (heads * tokens);
    token = row / heads % tokens;
  }
  const DumpRows& rows = samples_.of(static_cast<int>(layer), part_);
  const size_t dim = static_cast<size_t>(rows.head_dim);
  const std::byte* from =
      rows.bytes.data() + token * rows.row_bytes() + head * (rows.row_bytes() / heads);
  if (rows.lane == LaneType::kF32) {
    std::memcpy(to, from, dim * sizeof(float));
    return;
  }
  for (size_t i = 0; i < dim; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, 2);
    to[i] = rows.lane == LaneType::kF16 ? F16ToF32(bits) : BF16ToF32(bits);
  }
}

std::string SampleRows::GroupName(int group) const {
  const char* part = PartName(part_);
  if (grain_ == CodebookGrain::kModel) return fmt::format("{} of all layers", part);
  if (grain_ == CodebookGrain::kLayer) return fmt::format("{} of layer {}", part, group);
  return fmt::format("{} of layer {}, KV head {}", part, group / samples_.num_kv_heads,
                     group % samples_.num_kv_heads);
}

}  // namespace varve::cli

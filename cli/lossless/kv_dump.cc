#include "cli/lossless/kv_dump.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/half.h"
#include "cli/report/output.h"
#include "runtime/model_cache.h"
#include "varve/plan.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;
using store::LaneType;

// Values that came out of a cache of this precision: narrowing loses nothing.
void StoreValues(LaneType lane, const float* values, size_t count, std::byte* out) {
  if (lane == LaneType::kF32) {
    std::memcpy(out, values, 4 * count);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = lane == LaneType::kF16 ? F32ToF16(values[i]) : F32ToBF16(values[i]);
    std::memcpy(out + 2 * i, &bits, 2);
  }
}

Result<DumpRows> ReadPart(const Cache& cache, SequenceId sequence, int layer, Part part,
                          int64_t num_tokens, LaneType lane) {
  DumpRows rows;
  rows.layer = layer;
  rows.part = part;
  rows.lane = lane;
  rows.num_heads = cache.shape().num_kv_heads;
  rows.head_dim = part == Part::kKey ? cache.shape().key_dim : cache.shape().value_dim;
  rows.num_tokens = num_tokens;
  rows.bytes.resize(static_cast<size_t>(num_tokens) * rows.row_bytes());
  const size_t dim = static_cast<size_t>(rows.head_dim);
  const size_t head_bytes = rows.row_bytes() / static_cast<size_t>(rows.num_heads);
  std::vector<float> values(static_cast<size_t>(num_tokens) * dim);
  for (int head = 0; head < rows.num_heads; ++head) {
    VARVE_ASSIGN_OR_RETURN(const int64_t read, cache.ReadRows(sequence, layer, head, part, 0,
                                                              num_tokens, values.data()));
    if (read != num_tokens) {
      return Internal(fmt::format("layer {}: {} rows of {}", layer, read, num_tokens));
    }
    for (size_t t = 0; t < static_cast<size_t>(num_tokens); ++t) {
      std::byte* to =
          rows.bytes.data() + t * rows.row_bytes() + static_cast<size_t>(head) * head_bytes;
      StoreValues(lane, values.data() + t * dim, dim, to);
    }
  }
  return rows;
}

Result<std::string> ReadFile(const fs::path& path, uint64_t max_bytes) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return IoError(fmt::format("{}: {}", path.string(), error.message()));
  if (size > max_bytes) {
    return InvalidArgument(fmt::format("{}: {} bytes > {}", path.string(), size, max_bytes));
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file.good() && size > 0) return IoError(fmt::format("{}: cannot read", path.string()));
  return text;
}

Status ReadRows(const fs::path& path, const store::DumpMeta& meta, Part part, DumpRows& rows) {
  const uint64_t expected = meta.file_bytes();
  VARVE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, expected));
  if (text.size() != expected) {
    return InvalidArgument(
        fmt::format("{}: {} bytes, its meta says {}", path.string(), text.size(), expected));
  }
  rows.layer = meta.layer_id;
  rows.part = part;
  rows.lane = *ParseLane("dtype", meta.dtype);
  rows.num_heads = meta.kv_heads;
  rows.head_dim = meta.head_dim;
  rows.num_tokens = meta.seq_len;
  rows.seq_start = meta.seq_start;
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  rows.bytes.assign(data, data + text.size());
  return Status();
}

Result<DumpPiece> ReadPiece(const fs::path& path) {
  VARVE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, uint64_t{1} << 20));
  Result<store::DumpMeta> meta = store::ParseDumpMeta(text);
  if (!meta.ok()) {
    return InvalidArgument(fmt::format("{}: {}", path.string(), meta.status().message()));
  }
  DumpPiece piece;
  piece.meta = std::move(*meta);
  const fs::path folder = path.parent_path();
  VARVE_RETURN_IF_ERROR(ReadRows(folder / piece.meta.k_file, piece.meta, Part::kKey, piece.keys));
  VARVE_RETURN_IF_ERROR(
      ReadRows(folder / piece.meta.v_file, piece.meta, Part::kValue, piece.values));
  return piece;
}

Status WritePiece(const fs::path& folder, const DumpRows& keys, const DumpRows& values,
                  int64_t begin, int64_t end, const std::string& run_id) {
  store::DumpMeta meta;
  meta.stage = "prefill";
  meta.run_id = run_id;
  meta.layer_id = keys.layer;
  meta.seq_start = begin;
  meta.seq_len = end - begin;
  meta.kv_heads = keys.num_heads;
  meta.head_dim = keys.head_dim;
  meta.dtype = LaneName(keys.lane);
  meta.bytes_per_elem = keys.lane == LaneType::kF32 ? 4 : 2;
  meta.k_file = fmt::format("k_t{}_{}.bin", begin, end);
  meta.v_file = fmt::format("v_t{}_{}.bin", begin, end);
  for (const DumpRows* rows : {&keys, &values}) {
    const std::span<const std::byte> bytes =
        std::span(rows->bytes)
            .subspan(static_cast<size_t>(begin) * rows->row_bytes(), meta.file_bytes());
    VARVE_RETURN_IF_ERROR(
        WriteFile((folder / (rows == &keys ? meta.k_file : meta.v_file)).string(), bytes));
  }
  return WriteText((folder / fmt::format("meta_t{}_{}.json", begin, end)).string(),
                   store::FormatDumpMeta(meta));
}

}  // namespace

const char* PartName(Part part) { return part == Part::kKey ? "k" : "v"; }

const char* LaneName(LaneType lane) {
  return lane == LaneType::kF32 ? "f32" : lane == LaneType::kF16 ? "f16" : "bf16";
}

Result<LaneType> ParseLane(const std::string& option, const std::string& text) {
  for (const LaneType lane : {LaneType::kF16, LaneType::kBF16, LaneType::kF32}) {
    if (text == LaneName(lane)) return lane;
  }
  return InvalidArgument(fmt::format("{} \"{}\": not one of f16 bf16 f32", option, text));
}

Result<std::vector<DumpRows>> DumpModel(const LoadedModel& model, Executor& executor,
                                        const std::vector<int32_t>& tokens, LaneType lane,
                                        const std::function<bool(int64_t)>& progress) {
  VARVE_ASSIGN_OR_RETURN(Plan plan, ParsePlan(fmt::format("{0},open_rung={0}", LaneName(lane))));
  CacheOptions options = CacheOptionsFor(*model.model);
  options.plan = std::move(plan);
  options.executor = &executor;
  VARVE_ASSIGN_OR_RETURN(std::unique_ptr<Cache> cache,
                         Cache::Create(model.model->cache_shape(), std::move(options)));
  VARVE_ASSIGN_OR_RETURN(const SequenceId sequence, cache->CreateSequence());
  VARVE_RETURN_IF_ERROR(model.model->MakeRunner(executor)->Forward(
      *cache, sequence, tokens, Logits::kNone, nullptr, progress));
  std::vector<DumpRows> all;
  for (int layer = 0; layer < cache->shape().num_layers; ++layer) {
    for (const Part part : {Part::kKey, Part::kValue}) {
      VARVE_ASSIGN_OR_RETURN(DumpRows rows, ReadPart(*cache, sequence, layer, part,
                                                     static_cast<int64_t>(tokens.size()), lane));
      all.push_back(std::move(rows));
    }
  }
  return all;
}

Status WriteDump(const std::string& folder, const std::vector<DumpRows>& rows, int64_t chunk,
                 const std::string& run_id) {
  for (size_t i = 0; i + 1 < rows.size(); i += 2) {
    const DumpRows& keys = rows[i];
    const DumpRows& values = rows[i + 1];
    if (keys.head_dim != values.head_dim) {
      return Unimplemented(
          fmt::format("a dump has one head_dim; K has {}, V {}", keys.head_dim, values.head_dim));
    }
    const fs::path place = fs::path(folder) / fmt::format("layer_{}", keys.layer);
    std::error_code error;
    if (fs::exists(place, error)) {
      return InvalidArgument(fmt::format("-o \"{}\": {} is there already", folder, place.string()));
    }
    fs::create_directories(place, error);
    if (error) return IoError(fmt::format("{}: {}", place.string(), error.message()));
    for (int64_t begin = 0; begin < keys.num_tokens; begin += chunk) {
      const int64_t end = std::min(begin + chunk, keys.num_tokens);
      VARVE_RETURN_IF_ERROR(WritePiece(place, keys, values, begin, end, run_id));
    }
  }
  return Status();
}

Result<ReadDumpResult> ReadDump(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> metas;
  fs::recursive_directory_iterator it(folder, error), end;
  if (error) return NotFound(fmt::format("{}: {}", folder, error.message()));
  for (; it != end; it.increment(error)) {
    if (error) return IoError(fmt::format("{}: {}", folder, error.message()));
    const std::string name = it->path().filename().string();
    if (name.starts_with("meta_") && name.ends_with(".json")) metas.push_back(it->path());
  }
  if (metas.empty()) return NotFound(fmt::format("{}: no meta_*.json below it", folder));
  std::sort(metas.begin(), metas.end());
  ReadDumpResult result;
  for (const fs::path& path : metas) {
    Result<DumpPiece> piece = ReadPiece(path);
    if (piece.ok()) {
      result.pieces.push_back(std::move(*piece));
    } else {
      result.failures.push_back(piece.status().message());
    }
  }
  std::stable_sort(result.pieces.begin(), result.pieces.end(),
                   [](const DumpPiece& a, const DumpPiece& b) {
                     return std::tie(a.meta.layer_id, a.meta.seq_start) <
                            std::tie(b.meta.layer_id, b.meta.seq_start);
                   });
  return result;
}

PagePart MakePagePart(const DumpRows& rows, int64_t begin, int64_t count) {
  PagePart page;
  page.shape = {rows.lane,
                rows.part == Part::kKey ? store::PartLayout::kKey : store::PartLayout::kValue,
                rows.num_heads, static_cast<int>(count), rows.head_dim};
  // What no page could hold still has rows.
  if (!page.shape.Check().ok()) page.shape.layout = store::PartLayout::kRows;
  page.bytes.resize(page.shape.Bytes());
  page.first_position = rows.seq_start + begin;
  for (int64_t r = 0; r < count; ++r) {
    store::ScatterRow(page.shape,
                      rows.bytes.data() + static_cast<size_t>(begin + r) * rows.row_bytes(),
                      static_cast<int>(r), {page.bytes, 0});
  }
  return page;
}

}  // namespace varve::cli

#include "cli/codebook/codebook_training.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/random.h"
#include "cli/codebook/codebook_kmeans.h"
#include "rungs/pq/codebook_limits.h"

namespace varve::cli {
namespace {

// Rows of zeros were left out: a group that has little else gets what it has again, until there is
// a row for each centroid.
void FillUp(UnitRows& rows, const CodebookTable& table) {
  const size_t dim = static_cast<size_t>(table.dim);
  if (rows.count == 0) {
    rows.values.assign(dim, 0.0f);
    rows.count = 1;
  }
  for (size_t i = 0; rows.count < static_cast<size_t>(table.num_codes()); ++i, ++rows.count) {
    for (size_t d = 0; d < dim; ++d) rows.values.push_back(rows.values[i * dim + d]);
  }
}

// Centroids [codes, sub_dim] as bytes [sub_dim, codes] and their scale.
void RoundCentroids(const std::vector<float>& centroids, int sub_dim, float* scale,
                    uint8_t* bytes) {
  float largest = 0;
  for (const float value : centroids) largest = std::max(largest, std::abs(value));
  // A sub-space of zeros has centroids of zero, whatever the scale is.
  *scale = std::max(largest / 127, kMinCodebookScale);
  const size_t codes = centroids.size() / static_cast<size_t>(sub_dim);
  for (size_t j = 0; j < codes; ++j) {
    for (size_t d = 0; d < static_cast<size_t>(sub_dim); ++d) {
      const float level = centroids[j * static_cast<size_t>(sub_dim) + d] / *scale;
      const int rounded = static_cast<int>(std::lround(std::clamp(level, -127.0f, 127.0f)));
      bytes[d * codes + j] = static_cast<uint8_t>(rounded + 128);
    }
  }
}

double GroupWork(int dim, int bits) {
  return static_cast<double>(dim) * static_cast<double>(size_t{1} << bits) *
         static_cast<double>(MostTrainingRows(bits));
}

// About: OPQ has nearly five times the iterations, on fewer rows, and products of matrices.
double RotationWork(RotationKind kind, int dim, int bits) {
  return (kind == RotationKind::kOpq ? 2 : 0.1) * GroupWork(dim, bits);
}

class TableTrainer {
 public:
  TableTrainer(const PartTraining& training, const TrainingOptions& options, Executor& executor,
               const TrainingProgress& progress)
      : training_(training), options_(options), executor_(executor), progress_(progress) {}

  Result<std::vector<CodebookTable>> Run() {
    VARVE_RETURN_IF_ERROR(Check());
    size_t wanted = 0;
    for (const CodebookSize& size : training_.sizes) {
      tables_.push_back(EmptyTable(size));
      wanted = std::max(wanted, MostTrainingRows(size.bits));
    }
    if (options_.rotation != RotationKind::kNone) {
      for (CodebookTable& table : tables_) VARVE_RETURN_IF_ERROR(TrainRotations(table));
    }
    for (int group = 0; group < training_.num_groups; ++group) {
      VARVE_ASSIGN_OR_RETURN(const UnitRows rows, ReadUnitRows(*training_.rows, group,
                                                               static_cast<size_t>(training_.dim),
                                                               wanted, Seed(group, -1, 0)));
      for (size_t i = 0; i < tables_.size(); ++i) {
        VARVE_RETURN_IF_ERROR(TrainGroup(rows, group, tables_[i]));
      }
    }
    return std::move(tables_);
  }

 private:
  Status Check() const;
  CodebookTable EmptyTable(const CodebookSize& size) const;
  Status TrainRotations(CodebookTable& table);
  Status TrainGroup(const UnitRows& all, int group, CodebookTable& table);
  // Counts work that is done; an error if nobody wants the rest.
  Status Advance(double work) {
    done_ += work;
    return !progress_ || progress_(done_) ? Status() : FailedPrecondition("interrupted");
  }

  // One number for each k-means, so that they do not begin alike.
  uint64_t Seed(int group, int bits, int subspace) const {
    const uint64_t place = (static_cast<uint64_t>(group) << 32) ^
                           (static_cast<uint64_t>(bits + 1) << 16) ^
                           static_cast<uint64_t>(subspace);
    return SplitMix64(options_.seed * 2 + (training_.part == Part::kKey ? 0 : 1)).Next() ^ place;
  }

  const PartTraining& training_;
  const TrainingOptions& options_;
  Executor& executor_;
  const TrainingProgress& progress_;
  std::vector<CodebookTable> tables_;
  double done_ = 0;
};

Status TableTrainer::Check() const {
  for (const CodebookSize& size : training_.sizes) {
    VARVE_RETURN_IF_ERROR(CheckSize(size, training_.dim));
    for (int group = 0; group < training_.num_groups; ++group) {
      const size_t rows = training_.rows->NumRows(group);
      const size_t codes = size_t{1} << size.bits;
      if (rows >= codes) continue;
      return InvalidArgument(
          fmt::format("size {}: {} has {} rows < {} centroids; it takes more text or fewer bits",
                      SizeText(size), training_.rows->GroupName(group), rows, codes));
    }
  }
  return Status();
}

CodebookTable TableTrainer::EmptyTable(const CodebookSize& size) const {
  CodebookTable table;
  table.part = training_.part;
  table.dim = training_.dim;
  table.num_subspaces = size.num_subspaces;
  table.bits = size.bits;
  table.grain = training_.grain;
  table.scales.resize(NumScales(table, training_.num_groups));
  table.centroids.resize(NumCentroidBytes(table, training_.num_groups));
  return table;
}

// One group per thread: most of what OPQ does runs on one.
Status TableTrainer::TrainRotations(CodebookTable& table) {
  const size_t groups = static_cast<size_t>(training_.num_groups);
  const size_t stride = static_cast<size_t>(table.dim) * static_cast<size_t>(table.dim);
  table.rotation.resize(groups * stride);
  std::vector<Status> results(groups);
  const size_t batch = static_cast<size_t>(executor_.num_threads());
  for (size_t begin = 0; begin < groups; begin += batch) {
    const size_t count = std::min(batch, groups - begin);
    executor_.ParallelFor(count, [&](size_t i, int) {
      const int group = static_cast<int>(begin + i);
      results[begin + i] = [&]() -> Status {
        VARVE_ASSIGN_OR_RETURN(UnitRows rows,
                               ReadUnitRows(*training_.rows, group, static_cast<size_t>(table.dim),
                                            kRotationRows, Seed(group, -1, table.num_subspaces)));
        FillUp(rows, table);
        const std::vector<uint16_t> rotation = TrainRotation(
            options_.rotation, rows.values, table.dim, table.num_subspaces, table.bits);
        std::copy(rotation.begin(), rotation.end(),
                  table.rotation.begin() + static_cast<ptrdiff_t>((begin + i) * stride));
        return Status();
      }();
    });
    VARVE_RETURN_IF_ERROR(Advance(RotationWork(options_.rotation, table.dim, table.bits) *
                                  static_cast<double>(count)));
  }
  for (const Status& status : results) VARVE_RETURN_IF_ERROR(status);
  return Status();
}

Status TableTrainer::TrainGroup(const UnitRows& all, int group, CodebookTable& table) {
  const size_t dim = static_cast<size_t>(table.dim);
  const size_t sub_dim = static_cast<size_t>(table.sub_dim());
  const size_t num_subspaces = static_cast<size_t>(table.num_subspaces);
  const size_t codes = static_cast<size_t>(table.num_codes());
  UnitRows rows = Thin(all, MostTrainingRows(table.bits), dim);
  FillUp(rows, table);
  if (options_.rotation != RotationKind::kNone) {
    rows = Rotate(rows, &table.rotation[static_cast<size_t>(group) * dim * dim], dim, executor_);
  }
  executor_.ParallelFor(num_subspaces, [&](size_t m, int) {
    std::vector<float> points(rows.count * sub_dim);
    for (size_t r = 0; r < rows.count; ++r) {
      std::copy_n(&rows.values[r * dim + m * sub_dim], sub_dim, &points[r * sub_dim]);
    }
    const std::vector<float> centroids =
        KMeans(points, table.sub_dim(), table.num_codes(), options_.iterations,
               Seed(group, table.bits, static_cast<int>(m)));
    const size_t at = static_cast<size_t>(group) * num_subspaces + m;
    RoundCentroids(centroids, table.sub_dim(), &table.scales[at],
                   &table.centroids[at * sub_dim * codes]);
  });
  return Advance(GroupWork(table.dim, table.bits));
}

// The rows of one head, for every group.
class SpanRows final : public RowSource {
 public:
  explicit SpanRows(const SharedRows& rows) : rows_(rows) {}
  size_t NumRows(int) const override { return rows_.rows.size() / static_cast<size_t>(rows_.dim); }
  void ReadRow(int, size_t row, float* to) const override {
    std::copy_n(rows_.rows.begin() + static_cast<ptrdiff_t>(row * static_cast<size_t>(rows_.dim)),
                rows_.dim, to);
  }
  std::string GroupName(int) const override { return "the given rows"; }

 private:
  const SharedRows& rows_;
};

// The one group that there is, `groups` times.
template <typename T>
void Repeat(std::vector<T>& values, int groups) {
  const size_t size = values.size();
  values.reserve(size * static_cast<size_t>(groups));
  for (int group = 1; group < groups; ++group) {
    values.insert(values.end(), values.begin(), values.begin() + static_cast<ptrdiff_t>(size));
  }
}

}  // namespace

std::string SizeText(const CodebookSize& size) {
  return fmt::format("{}x{}", size.num_subspaces, size.bits);
}

Result<CodebookSize> ParseSize(const std::string& option, const std::string& text) {
  CodebookSize size;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, size.num_subspaces);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == 'x') {
    const auto second = std::from_chars(first.ptr + 1, end, size.bits);
    if (second.ec == std::errc() && second.ptr == end) return size;
  }
  return InvalidArgument(
      fmt::format("{} \"{}\": a size is MxB, sub-spaces and bits, such as 64x8", option, text));
}

Status CheckSize(const CodebookSize& size, int dim) {
  const std::string text = SizeText(size);
  if (dim < kMinCodebookDim || dim > kMaxCodebookDim || dim % 16 != 0) {
    return InvalidArgument(fmt::format("head_dim {} is not a multiple of 16 in {} … {}", dim,
                                       kMinCodebookDim, kMaxCodebookDim));
  }
  if (size.num_subspaces < 1 || dim % size.num_subspaces != 0) {
    return InvalidArgument(
        fmt::format("size {}: M {} does not divide head_dim {}", text, size.num_subspaces, dim));
  }
  if (size.bits < kMinCodebookBits || size.bits > kMaxCodebookBits) {
    return InvalidArgument(fmt::format("size {}: bits {} is not in {} … {}", text, size.bits,
                                       kMinCodebookBits, kMaxCodebookBits));
  }
  return Status();
}

size_t MostTrainingRows(int bits) {
  // More than 256 rows for each centroid change nothing. Where centroids are few, 65536 rows cost
  // little.
  return std::max(size_t{65536}, size_t{256} << bits);
}

double TrainingWork(const PartTraining& training, const TrainingOptions& options) {
  double work = 0;
  for (const CodebookSize& size : training.sizes) {
    work += GroupWork(training.dim, size.bits) * training.num_groups;
    if (options.rotation != RotationKind::kNone)
      work += RotationWork(options.rotation, training.dim, size.bits) * training.num_groups;
  }
  return work;
}

Result<std::vector<CodebookTable>> TrainTables(const PartTraining& training,
                                               const TrainingOptions& options, Executor& executor,
                                               const TrainingProgress& progress) {
  return TableTrainer(training, options, executor, progress).Run();
}

Result<Codebook> TrainOnRows(std::span<const SharedRows> parts, int num_layers, int num_kv_heads,
                             CodebookGrain grain, const TrainingOptions& options,
                             Executor& executor) {
  Codebook codebook;
  codebook.num_layers = num_layers;
  codebook.num_kv_heads = num_kv_heads;
  for (const SharedRows& part : parts) {
    const SpanRows rows(part);
    const PartTraining training = {part.part, part.dim, grain, 1, part.sizes, &rows};
    VARVE_ASSIGN_OR_RETURN(std::vector<CodebookTable> tables,
                           TrainTables(training, options, executor, {}));
    for (CodebookTable& table : tables) {
      const int groups = codebook.NumGroups(grain);
      Repeat(table.scales, groups);
      Repeat(table.centroids, groups);
      Repeat(table.rotation, groups);
      codebook.tables.push_back(std::move(table));
    }
  }
  VARVE_RETURN_IF_ERROR(CheckCodebook(codebook));
  return codebook;
}

}  // namespace varve::cli

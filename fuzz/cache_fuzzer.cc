// The input is a program of cache operations. It runs on a small cache and on the reference model
// side by side. After every operation all that can be read of every sequence must agree, stored
// rows bit for bit. A bad call must name its error and change nothing. At the end every sequence is
// freed, and no byte may be left.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "fold/compressor_testing.h"
#include "rungs/pq/pq_testing.h"
#include "tests/cache/cache_twin.h"
#include "varve/cache.h"

namespace {

using varve::SequenceId;
using varve::Status;
using varve::StatusCode;
using varve::StepEntry;

constexpr const char* kPlans[] = {
    "f16",
    "q8_0",
    "q4_0,open=20,exact=0",
    "k=q8_0,v=q4_0r,exact=0",
    "f32,open_rung=f32",
    "age=f16:23/q8_0:50/q4_0,exact=0",
    "age=q8_0r:17/q4_0r,open=5,window=77,exact=0",
    "bf16,open_rung=bf16,window=40,sink=20",
    "0: f16; 1: q4_0,window=33,exact=0",
    "0: q8_0,open=100; 1: age=f16:40/q8_0",
    "age=q8_0:30/f16",
    "pq2,open=0,exact=0",
    "k=pq16x5,v=q8_0,open=20,exact=0",
    "k=f16,v=pq8x9,open=0,window=90,sink=10,exact=0",
    "age=f16:30/pq2:80/q4_0,exact=0",
    "0: pq2,exact=0; 1: k=pq16x5,v=pq8x9,open=5,exact=0",
    "q4_0",
    "0: age=f16:23/q8_0:50/q4_0,exact=20; 1: q8_0,exact=40,window=60",
    "t4,exact=0",
    "k=t3,v=t2,open=20,window=90,sink=10,exact=0",
    "age=f16:23/t4:50/t2,exact=20",
    "q8_0,open=20,idle=q4_0,exact=0",
    "0: age=f16:23/t4,idle_k=t3,idle_v=t2,exact=20; 1: f16,idle=pq2,window=90,sink=10,exact=0",
};

// Plans that fold: keys and values have one dimension then.
struct FoldingPlan {
  const char* plan;
  int factor;
  int min_groups;
  bool has_image;
  // Sealing folded pages may find no memory and is then put off; the model never puts it off.
  bool seals;
};
constexpr FoldingPlan kFoldingPlans[] = {
    {"f32,open_rung=f32,fold", 2, 1, true, false},
    {"f16,fold,image=21", 5, 2, true, false},
    {"f16,fold,image=30", 3, 1, false, false},
    {"f16,fold,fold_positions=restart", 4, 2, true, false},
    {"f16,fold,fold_positions=restart,image=9,window=33,sink=5", 2, 2, true, false},
    {"f16,fold,window=40,sink=20", 3, 1, true, false},
    {"0: f16; 1: f16,fold", 7, 1, true, false},
    {"0: q8_0,fold,window=60; 1: age=f16:40/q8_0", 2, 3, true, true},
    {"age=f16:23/q8_0:50/q4_0,fold,exact=0", 4, 1, true, true},
    {"k=q8_0,v=q4_0r,fold,open=20,image=40,exact=30", 2, 1, true, true},
    {"age=f16:30/pq2:80/q4_0,fold,fold_positions=restart,exact=0", 3, 1, true, true},
    {"pq2,open=0,fold,exact=0", 9, 1, true, true},
    {"age=f16:30/t3,fold,exact=0", 3, 1, true, true},
};

constexpr size_t kMaxSequences = 5;
constexpr int64_t kMaxPosition = 200;
constexpr int kMaxOperations = 100;

[[noreturn]] void Fail(const char* operation, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", operation, status.ToString().c_str());
  std::abort();
}

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  int Next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // In [0, limit].
  int64_t UpTo(int64_t limit) { return (Next() * 256 + Next()) % (limit + 1); }

 private:
  const uint8_t* data_;
  size_t size_;
};

varve::CacheShape Shape(int value_dim) {
  varve::CacheShape shape;
  shape.num_layers = 2;
  shape.num_kv_heads = 2;
  shape.group_size = 2;
  shape.key_dim = 64;
  shape.value_dim = value_dim;
  shape.page_tokens = 16;
  return shape;
}

// What the plans with pq rungs need: narrow and wide codes, with and without rotations.
const std::shared_ptr<const varve::Codebook>& Codebook() {
  using varve::CodebookGrain;
  using varve::Part;
  static const std::shared_ptr<const varve::Codebook> codebook =
      varve::SharePqCodebook(Shape(32), {{Part::kKey, {32, 4}, CodebookGrain::kHead, false},
                                         {Part::kKey, {16, 5}, CodebookGrain::kLayer, true},
                                         {Part::kValue, {16, 4}, CodebookGrain::kModel, false},
                                         {Part::kValue, {8, 9}, CodebookGrain::kHead, true}});
  return codebook;
}

const std::shared_ptr<const varve::Codebook>& FoldingCodebook() {
  using varve::CodebookGrain;
  using varve::Part;
  static const std::shared_ptr<const varve::Codebook> codebook =
      varve::SharePqCodebook(Shape(64), {{Part::kKey, {32, 4}, CodebookGrain::kHead, false},
                                         {Part::kValue, {32, 4}, CodebookGrain::kModel, false}});
  return codebook;
}

class Program {
 public:
  Program(Bytes bytes, const char* plan, const varve::CacheShape& shape,
          const varve::CacheOptions& options, int rows_per_nan)
      : bytes_(bytes),
        capped_(options.max_bytes > 0),
        folds_(options.compressor != nullptr),
        // Without memory some pages rest and some do not; the model knows no such state.
        rests_(!capped_ && std::string_view(plan).find("idle") != std::string_view::npos),
        twin_(shape, plan, options) {
    twin_.PutNaNEvery(rows_per_nan);
  }

  void Run() {
    for (int i = 0; i < kMaxOperations && !bytes_.empty(); ++i) Operation();
    while (!live_.empty()) Free();
    const varve::CacheStats stats = twin_.cache().Stats();
    if (stats.bytes_used != 0 || stats.pages != 0) Fail("end", varve::Internal("pages are left"));
  }

 private:
  void Operation() {
    const int operation = bytes_.Next() % 16;
    if (live_.empty() || operation == 0) return Create();
    switch (operation) {
      case 1:
        return Fork();
      case 2:
        return Free();
      case 3:
        return Truncate();
      case 4:
        return RemoveRange();
      case 5:
        return KeepOnly();
      case 6:
        return Slide();
      case 7:
        return AbortedStep();
      case 8:
        return BadSequenceCall();
      case 9:
        return BadStep();
      case 10:
        return Attend();
      case 11:
        return folds_ ? Prompt() : Step();
      case 12:
        return rests_ ? Rest() : Step();
      default:
        return Step();
    }
  }

  SequenceId Pick() { return live_[bytes_.Next() % live_.size()]; }
  int64_t Next(SequenceId id) const { return twin_.reference().next_position(id); }

  void Create() {
    if (live_.size() < kMaxSequences) live_.push_back(twin_.Create());
  }
  void Fork() {
    if (live_.size() >= kMaxSequences) return;
    const varve::Result<SequenceId> id = twin_.Fork(Pick());
    if (!id.ok()) Fail("Fork", id.status());
    live_.push_back(*id);
    Expect("Fork", twin_.Compare());
  }
  void Free() {
    const SequenceId id = Pick();
    Expect("Free", twin_.Free(id));
    std::erase(live_, id);
    freed_.push_back(id);
  }
  void Truncate() {
    const SequenceId id = Pick();
    const int64_t position = bytes_.UpTo(Next(id));
    ExpectCut("Truncate", id, {position}, twin_.Truncate(id, position));
  }
  void RemoveRange() {
    const SequenceId id = Pick();
    const int64_t begin = bytes_.UpTo(Next(id));
    const int64_t end = begin + bytes_.UpTo(Next(id) - begin);
    ExpectCut("RemoveRange", id, {begin, end}, twin_.RemoveRange(id, begin, end));
  }
  void KeepOnly() {
    const SequenceId id = Pick();
    const int64_t begin = bytes_.UpTo(Next(id));
    const int64_t end = begin + bytes_.UpTo(Next(id) - begin);
    ExpectCut("KeepOnly", id, {begin, end}, twin_.KeepOnly(id, begin, end));
  }
  void Slide() {
    const SequenceId id = Pick();
    const int64_t tokens = 1 + bytes_.UpTo(kMaxPosition);
    Expect("SlideWindow", twin_.SlideWindow(id, tokens, bytes_.Next() % 64));
  }

  void Rest() {
    const SequenceId id = Pick();
    const int64_t begin = bytes_.UpTo(Next(id));
    Expect("Rest", twin_.Rest(id, begin, begin + bytes_.UpTo(Next(id) - begin)));
  }

  // Ends a prompt, without folding it now and then, or begins one.
  void Prompt() {
    const SequenceId id = Pick();
    const int how = bytes_.Next() % 8;
    if (how < 3) return Expect("BeginPrompt", twin_.BeginPrompt(id));
    ExpectOrFull("EndPrompt", twin_.EndPrompt(id, how > 3));
  }

  // One entry for every live sequence that a bit mask names and that has room.
  std::vector<StepEntry> Entries() {
    std::vector<StepEntry> entries;
    const int mask = bytes_.Next();
    for (size_t i = 0; i < live_.size(); ++i) {
      if (!(mask >> i & 1) || Next(live_[i]) >= kMaxPosition) continue;
      // The reference keeps what every token of a step sees.
      const int most = std::min(40, *twin_.cache().MaxStepTokens(live_[i]));
      const int byte = bytes_.Next();
      entries.push_back({live_[i], byte >= 128 ? most : 1 + byte % most});
    }
    return entries;
  }
  varve::AttendOptions Options() {
    varve::AttendOptions options;
    const int byte = bytes_.Next();
    if (byte & 1) options.window = 1 + byte;
    if (byte & 2) options.soft_cap = 3.0f;
    if (byte & 4) options.scale = 0.3f;
    options.causal = (byte & 24) != 24;
    return options;
  }
  void Step() {
    const std::vector<StepEntry> entries = Entries();
    if (entries.empty()) return;
    ExpectOrFull("Step", twin_.Step(entries, Options()));
  }
  void AbortedStep() {
    const std::vector<StepEntry> entries = Entries();
    if (entries.empty()) return;
    ExpectOrFull("AbortedStep", twin_.AbortedStep(entries, bytes_.Next() % 3));
  }
  void Attend() {
    const SequenceId id = Pick();
    const int queries = 1 + static_cast<int>(bytes_.UpTo(std::clamp<int64_t>(Next(id) - 1, 0, 40)));
    Expect("Attend", twin_.Attend(bytes_.Next() % 2, id, queries, Options()));
  }

  // --- calls that must be refused ---

  void BadSequenceCall() {
    varve::Cache& cache = twin_.cache();
    const SequenceId gone = freed_.empty() ? SequenceId{999} : freed_.back();
    const SequenceId id = Pick();
    switch (bytes_.Next() % 8) {
      case 0:
        Refused("Free", cache.Free(gone), StatusCode::kNotFound);
        break;
      case 1:
        Refused("Fork", cache.Fork(gone).status(), StatusCode::kNotFound);
        break;
      case 2:
        Refused("Truncate", cache.Truncate(id, Next(id) + 1), StatusCode::kInvalidArgument);
        break;
      case 3:
        Refused("Remove", cache.RemoveRange(id, 1, 0), StatusCode::kInvalidArgument);
        break;
      case 4:
        Refused("Keep", cache.KeepOnly(id, -1, 0), StatusCode::kInvalidArgument);
        break;
      case 5:
        Refused("Slide", cache.SlideWindow(id, 0, 0), StatusCode::kInvalidArgument);
        break;
      case 6:
        Refused("EndStep", cache.EndStep(), StatusCode::kFailedPrecondition);
        break;
      default:
        Refused("Describe", cache.Describe(id, 2).status(), StatusCode::kInvalidArgument);
        break;
    }
  }

  // Opens a step and breaks it.
  void BadStep() {
    varve::Cache& cache = twin_.cache();
    const std::vector<StepEntry> entries = Entries();
    if (entries.empty()) return;
    const Status begun = cache.BeginStep(entries);
    if (!begun.ok()) return ExpectOrFull("BeginStep", begun);
    const SequenceId id = entries[0].sequence;
    const int too_many = entries[0].num_tokens + 1;
    const std::vector<float> rows(static_cast<size_t>(too_many) * 2 * 64, 1.0f);
    const varve::RowsView one = {rows.data(), 1, 0, 0};
    const varve::RowsView many = {rows.data(), too_many, 0, 0};
    const varve::RowsView none = {nullptr, 1, 0, 0};
    std::vector<float> out(2 * 2 * 64);
    const varve::AttendRequest request = {id, 1, rows.data(), 0, 0, out.data(), 0, 0, nullptr};
    const int layer = bytes_.Next() % 2;
    switch (bytes_.Next() % 6) {
      case 0:
        Refused("EndStep", cache.EndStep(), StatusCode::kFailedPrecondition);
        break;
      case 1:
        Refused("Append", cache.Append(layer, id, many, many), StatusCode::kInvalidArgument);
        break;
      case 2:
        Refused("Append", cache.Append(2, id, one, one), StatusCode::kInvalidArgument);
        break;
      case 3:
        Refused("Append", cache.Append(layer, id, one, none), StatusCode::kInvalidArgument);
        break;
      case 4:
        Refused("Append", cache.Append(layer, {999}, one, one), StatusCode::kNotFound);
        break;
      default:
        Refused("Attend", cache.Attend(layer, {&request, 1}, {}), StatusCode::kFailedPrecondition);
        break;
    }
    Refused("EndStep", cache.EndStep(), StatusCode::kFailedPrecondition);
  }

  void Refused(const char* operation, const Status& status, StatusCode code) {
    if (status.code() != code || status.message().empty()) Fail(operation, status);
    Expect(operation, twin_.Compare());
  }
  void Expect(const char* operation, const Status& status) {
    if (!status.ok()) Fail(operation, status);
  }
  // Only a call that would cut a folded row is refused.
  void ExpectCut(const char* operation, SequenceId id, std::initializer_list<int64_t> cuts,
                 const Status& status) {
    const bool refused = std::any_of(cuts.begin(), cuts.end(), [&](int64_t cut) {
      return twin_.reference().IsInsideRow(id, cut);
    });
    if (!refused || status.ok()) return Expect(operation, status);
    Refused(operation, status, StatusCode::kInvalidArgument);
  }
  // With a cap, a step may be refused whole; once begun it must not run out of memory.
  void ExpectOrFull(const char* operation, const Status& status) {
    if (!capped_ || status.code() != StatusCode::kOutOfMemory) return Expect(operation, status);
    Expect(operation, twin_.Compare());
  }

  Bytes bytes_;
  bool capped_;
  bool folds_;
  bool rests_;
  varve::CacheTwin twin_;
  std::vector<SequenceId> live_;
  std::vector<SequenceId> freed_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  // The high bit of the first byte, so that older inputs of the corpus keep their meaning.
  const int which = bytes.Next();
  const int flags = bytes.Next();
  varve::CacheOptions options;
  options.codebook = Codebook();
  options.num_threads = flags & 1 ? 2 : 1;
  if (flags & 2) options.max_bytes = 40 << 10;  // 5 open pages
  if (flags & 4) options.max_bytes = 200 << 10;
  const int rows_per_nan = flags & 8 ? 6 : 0;
  if (which < 128) {
    Program(bytes, kPlans[which % std::size(kPlans)], Shape(32), options, rows_per_nan).Run();
    return 0;
  }
  const FoldingPlan& folding = kFoldingPlans[which % std::size(kFoldingPlans)];
  options.codebook = FoldingCodebook();
  options.compressor = std::make_shared<const varve::Compressor>(
      varve::RandomCompressor({.head_dim = 64,
                               .factor = folding.factor,
                               .min_groups = folding.min_groups,
                               .has_image = folding.has_image}));
  if (folding.seals) options.max_bytes = 0;
  Program(bytes, folding.plan, Shape(64), options, rows_per_nan).Run();
  return 0;
}

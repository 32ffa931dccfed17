// The CPU back end by itself: tables and jobs in, bytes and outputs out.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "pages/page_testing.h"
#include "tests/cache_testing.h"

namespace varve {
namespace cpu_backend_test {

struct Outcome {
  std::vector<float> output;       // [queries, heads, value_dim]
  std::vector<float> log_sum_exp;  // [queries, heads]
  std::vector<float> mass;         // [queries, heads, pages]
  Status status;
};

class MassKeeper final : public AttentionObserver {
 public:
  void OnAttention(const AttentionMass& told) override {
    const size_t count = static_cast<size_t>(told.num_queries * told.num_heads) * told.pages.size();
    mass.assign(told.mass, told.mass + count);
    ++calls;
  }
  std::vector<float> mass;
  int calls = 0;
};

class CpuBackendTest : public testing::Test {
 protected:
  CpuBackendTest() { UseThreads(2); }

  void UseThreads(int threads, const Kernels& kernels = ActiveKernels()) {
    backend_.reset();
    executor_ = MakeThreadPool(threads);
    stages_ = std::make_unique<StageTotals>(false, threads);
    backend_ = MakeCpuBackend(shape_, kernels, nullptr, executor_.get(), stages_.get());
  }

  // Five pages: two of q8_0, two of f16, and one that has 6 rows; a hole in page 2.
  void FillTable() {
    GrowTable(store_, shape_, 0, 32, q8_, random_, &table_);
    GrowTable(store_, shape_, 0, 70, f16_, random_, &table_);
    table_.Kill(35, 41);
    spaces_.Add(&f16_, &f16_);
    spaces_.Add(&q8_, &q8_);
    queries_ = random_.Gaussians(size_t{8} * 4 * 32);
  }

  // The last `count` positions of the table ask.
  Outcome Attend(int count, const AttendOptions& options = {}) {
    Outcome outcome;
    outcome.output.assign(static_cast<size_t>(count) * 4 * 32, -7.0f);
    outcome.log_sum_exp.resize(static_cast<size_t>(count) * 4);
    AttendRequest request;
    request.num_queries = count;
    request.queries = queries_.data();
    request.output = outcome.output.data();
    request.log_sum_exp = outcome.log_sum_exp.data();
    const AttentionRequest asked{&request, table_.entries(), 70 - count};
    MassKeeper observer;
    outcome.status = backend_->Attend(0, spaces_, {&asked, 1}, options, &observer);
    outcome.mass = std::move(observer.mass);
    return outcome;
  }

  // The same in double precision, on the rows as they are stored.
  std::vector<double> Expected(int count) const {
    std::vector<double> expected;
    for (int query = 0; query < count; ++query) {
      for (int head = 0; head < 4; ++head) {
        const float* asks = queries_.data() + static_cast<ptrdiff_t>(query * 4 + head) * 32;
        std::vector<double> sum(32);
        double total = 0;
        for (const TableEntry& entry : table_.entries()) {
          const std::vector<float> keys = RowsOf(store_, *entry.page, Part::kKey, head / 2);
          const std::vector<float> values = RowsOf(store_, *entry.page, Part::kValue, head / 2);
          for (int row = 0; row < entry.rows; ++row) {
            if (!entry.live.Get(row) || entry.page->RowPosition(row) > 70 - count + query) continue;
            double score = 0;
            for (int d = 0; d < 32; ++d) score += double{asks[d]} * keys[row * 32 + d];
            const double weight = std::exp(score / std::sqrt(32.0));
            total += weight;
            for (int d = 0; d < 32; ++d) sum[d] += weight * values[row * 32 + d];
          }
        }
        for (const double value : sum) expected.push_back(value / total);
      }
    }
    return expected;
  }

  const CacheShape shape_ = SmallPageShape();
  const Rung& f16_ = TestRung("f16");
  const Rung& q8_ = TestRung("q8_0");
  TestRandom random_{11};
  PageStore store_{shape_, PoolShare(SystemPageMemory(), 0)};
  PageSchedule schedule_{.page_tokens = 16, .open_rung = &f16_, .from_age = {0}};
  PageTable table_{&schedule_};
  LayerSpaces spaces_;
  std::vector<float> queries_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<StageTotals> stages_;
  std::unique_ptr<Backend> backend_;
};

// --- append and encode ---

TEST_F(CpuBackendTest, AppendsRowsWhereverTheyLie) {
  // Few rows go one after the other, many over the threads; both from rows with gaps.
  for (const int rows : {3, 16}) {
    const PageRef page = *store_.Make(0, 0, PageState::kFilling, f16_, f16_);
    page->rows = rows;
    const std::vector<float> keys = random_.Gaussians(size_t{16} * 100);
    const std::vector<float> values = random_.Gaussians(size_t{16} * 80);
    const AppendJob job{page.get(), 0, {keys.data(), rows, 100, 40}, {values.data(), rows, 80, 0}};
    ASSERT_EQ(backend_->Append(0, {&job, 1}).ToString(), "ok");
    const std::vector<float> stored = RowsOf(store_, *page, Part::kKey, 1);
    const std::vector<float> dense = RowsOf(store_, *page, Part::kValue, 1);
    for (int row = 0; row < rows; ++row) {
      for (int d = 0; d < 32; ++d) {
        EXPECT_NEAR(stored[row * 32 + d], keys[row * 100 + 40 + d], 4e-3);
        EXPECT_NEAR(dense[row * 32 + d], values[row * 80 + 32 + d], 4e-3);
      }
    }
  }
}

TEST_F(CpuBackendTest, EncodesEveryStripAsItsRungDoes) {
  GrowTable(store_, shape_, 0, 32, f16_, random_, &table_);
  std::vector<PageRef> to;
  std::vector<EncodeJob> jobs;
  for (const TableEntry& entry : table_.entries()) {
    // V keeps its rung: those strips are copied.
    to.push_back(*store_.Make(0, entry.page->first_position, PageState::kSealed, q8_, f16_));
    to.back()->rows = 16;
    jobs.push_back({entry.page.get(), to.back().get(), Status()});
  }
  backend_->Encode(jobs);
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_OK(jobs[i].status);
    const Page& from = *table_.entries()[i].page;
    for (int head = 0; head < 2; ++head) {
      const StripShape shape = store_.ShapeOf(Part::kKey, 0, head);
      std::vector<std::byte> strip(to[i]->part(Part::kKey).strip_bytes);
      const std::vector<float> rows = RowsOf(store_, from, Part::kKey, head);
      q8_.Encode(Part::kKey, shape, rows.data(), 16, strip.data());
      EXPECT_EQ(std::memcmp(strip.data(), to[i]->Strip(Part::kKey, head), strip.size()), 0);
      EXPECT_EQ(RowsOf(store_, from, Part::kValue, head),
                RowsOf(store_, *to[i], Part::kValue, head));
    }
  }
}

TEST_F(CpuBackendTest, CountsWhatAFormatCannotHold) {
  GrowTable(store_, shape_, 0, 16, f16_, random_, &table_);
  const Page& from = *table_.entries()[0].page;
  const std::vector<float> bad(32, std::numeric_limits<float>::quiet_NaN());
  f16_.WriteRows(Part::kKey, store_.ShapeOf(Part::kKey, 0, 1), from.Strip(Part::kKey, 1), 5, 1,
                 bad.data(), 32);
  const PageRef to = *store_.Make(0, 0, PageState::kSealed, q8_, q8_);
  const uint64_t before = backend_->replaced();
  EncodeJob job{&from, to.get(), Status()};
  backend_->Encode({&job, 1});
  EXPECT_OK(job.status);
  EXPECT_EQ(backend_->replaced(), before + 32u);
}

TEST_F(CpuBackendTest, APackedPageThatIsDamagedFailsItsOwnJobAlone) {
  GrowTable(store_, shape_, 0, 32, f16_, random_, &table_);
  for (const TableEntry& entry : table_.entries())
    ASSERT_OK(store_.Pack(entry.page.get(), PackStrips(store_, 2, *entry.page)));
  const PackedPage& packed = *table_.entries()[1].page->packed()->packed;
  packed.data[packed.ends[2] - 5] ^= std::byte{4};
  const PageRef first = *store_.Make(0, 0, PageState::kSealed, q8_, q8_);
  const PageRef second = *store_.Make(0, 16, PageState::kSealed, q8_, q8_);
  EncodeJob jobs[] = {{table_.entries()[0].page.get(), first.get(), Status()},
                      {table_.entries()[1].page.get(), second.get(), Status()}};
  backend_->Encode(jobs);
  EXPECT_OK(jobs[0].status);
  EXPECT_EQ(jobs[1].status.code(), StatusCode::kDataLoss);
  EXPECT_NE(jobs[1].status.message().find("page at 16"), std::string::npos);
}

// --- attention ---

TEST_F(CpuBackendTest, AttendsAsDoublePrecisionDoes) {
  FillTable();
  for (const int count : {1, 3, 8}) {
    const Outcome outcome = Attend(count);
    ASSERT_OK(outcome.status);
    const std::vector<double> expected = Expected(count);
    double worst = 0;
    for (size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(outcome.output[i] - expected[i]));
    EXPECT_LT(worst, 4 * AttentionTolerance("q8_0", "q8_0")) << count;
    EXPECT_GT(worst, 0.0);
  }
}

TEST_F(CpuBackendTest, ResultsDoNotDependOnThreadsNorOnTheQueriesBeside) {
  FillTable();
  const Outcome together = Attend(8);
  UseThreads(1);
  const Outcome alone = Attend(8);
  EXPECT_EQ(together.output, alone.output);
  EXPECT_EQ(together.log_sum_exp, alone.log_sum_exp);
  EXPECT_EQ(together.mass, alone.mass);
  // The last query, asked by itself.
  const std::vector<float> all = queries_;
  queries_.assign(all.end() - 4 * 32, all.end());
  const Outcome last = Attend(1);
  EXPECT_TRUE(std::equal(last.output.begin(), last.output.end(), together.output.end() - 4 * 32));
}

TEST_F(CpuBackendTest, TellsTheMassOfEveryPage) {
  FillTable();
  const Outcome outcome = Attend(8);
  ASSERT_EQ(outcome.mass.size(), size_t{8} * 4 * 5);
  for (size_t row = 0; row < size_t{8} * 4; ++row) {
    double sum = 0;
    for (size_t page = 0; page < 5; ++page) sum += outcome.mass[row * 5 + page];
    EXPECT_NEAR(sum, 1.0, 1e-5);
  }
  EXPECT_EQ(outcome.mass[4], 0.0f);      // position 62 does not see the page that begins at 64
  EXPECT_GT(outcome.mass.back(), 0.0f);  // position 69 does
}

TEST_F(CpuBackendTest, AQueryThatSeesNothingGivesZeros) {
  FillTable();
  table_.Kill(0, 70);
  const Outcome outcome = Attend(2);
  ASSERT_OK(outcome.status);
  EXPECT_EQ(outcome.output, std::vector<float>(size_t{2} * 4 * 32, 0.0f));
  EXPECT_EQ(outcome.log_sum_exp[0], -std::numeric_limits<float>::infinity());
}

TEST_F(CpuBackendTest, PackedPagesGiveTheSameBitsAndDamagedOnesAnError) {
  FillTable();
  const Outcome raw = Attend(3);
  Page* page = table_.entries()[3].page.get();
  ASSERT_OK(store_.Pack(page, PackStrips(store_, 2, *page)));
  const Outcome packed = Attend(3);
  ASSERT_OK(packed.status);
  EXPECT_EQ(raw.output, packed.output);
  EXPECT_EQ(backend_->unpacked().strips, 4u);
  page->packed()->packed->data[page->packed()->packed->bytes / 2] ^= std::byte{8};
  const Status status = Attend(3).status;
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("layer 0, page at 48"), std::string::npos) << status.message();
  page->packed()->packed->data[page->packed()->packed->bytes / 2] ^= std::byte{8};
  EXPECT_EQ(Attend(3).output, raw.output);  // the error is not kept
}

std::atomic<int> softmax_calls{0};
void CountedSoftmax(const SoftmaxArgs& args) {
  ++softmax_calls;
  AvailableKernels().front()->softmax(args);
}

TEST_F(CpuBackendTest, ComputesWithTheKernelsThatItWasGiven) {
  FillTable();
  const Outcome before = Attend(3);
  Kernels counted = ActiveKernels();
  counted.softmax = CountedSoftmax;
  UseThreads(2, counted);
  softmax_calls = 0;
  const Outcome outcome = Attend(3);
  EXPECT_GT(softmax_calls, 0);
  for (size_t i = 0; i < outcome.output.size(); ++i)
    EXPECT_NEAR(outcome.output[i], before.output[i], 1e-5);
}

bool softmax_throws = false;
void SoftmaxThatMayThrow(const SoftmaxArgs& args) {
  if (softmax_throws) throw std::bad_alloc();
  ActiveKernels().softmax(args);
}

TEST_F(CpuBackendTest, ACallThatThrowsLeavesNoErrorToTheNextOne) {
  FillTable();
  Kernels kernels = ActiveKernels();
  kernels.softmax = SoftmaxThatMayThrow;
  UseThreads(1, kernels);
  const Outcome healthy = Attend(3);
  Page* page = table_.entries()[3].page.get();
  ASSERT_OK(store_.Pack(page, PackStrips(store_, 2, *page)));
  // The worker notes that K of head 0 is damaged, and then finds no memory.
  const PackedPage& packed = *page->packed()->packed;
  std::byte& damaged = packed.data[packed.ends[0] - 5];
  damaged ^= std::byte{4};
  softmax_throws = true;
  EXPECT_THROW((void)Attend(3), std::bad_alloc);
  softmax_throws = false;
  damaged ^= std::byte{4};
  const Outcome outcome = Attend(3);
  EXPECT_OK(outcome.status);
  EXPECT_EQ(outcome.output, healthy.output);
}

// --- many splits ---

// 34 splits and up to 63 rows of four KV heads: merges of so many rows are tasks of their own, and
// of so many parts they take more than one round. Ten queries are two chunks, nine are one.
class CpuBackendManySplits : public testing::Test {
 protected:
  static constexpr int kPages = 33 * kSplitPages + 3;
  static constexpr int kTokens = kPages * 16;
  static constexpr int kHeads = 4 * 7;
  static constexpr int kQueries = 10;  // of the last positions

  CpuBackendManySplits() {
    // The rung changes inside a split.
    GrowTable(store_, shape_, 0, 250 * 16, q8_, random_, &table_);
    GrowTable(store_, shape_, 0, kTokens, f16_, random_, &table_);
    spaces_.Add(&f16_, &f16_);
    spaces_.Add(&q8_, &q8_);
    queries_ = random_.Gaussians(size_t{kQueries} * kHeads * 32);
  }

  // `count` queries from `first` on.
  Outcome Attend(int threads, int first, int count) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    StageTotals stages(false, threads);
    const std::unique_ptr<Backend> backend =
        MakeCpuBackend(shape_, ActiveKernels(), nullptr, executor.get(), &stages);
    Outcome outcome;
    outcome.output.resize(static_cast<size_t>(count) * kHeads * 32);
    outcome.log_sum_exp.resize(static_cast<size_t>(count) * kHeads);
    AttendRequest request;
    request.num_queries = count;
    request.queries = queries_.data() + static_cast<ptrdiff_t>(first) * kHeads * 32;
    request.output = outcome.output.data();
    request.log_sum_exp = outcome.log_sum_exp.data();
    const AttentionRequest asked{&request, table_.entries(), kTokens - kQueries + first};
    MassKeeper observer;
    outcome.status = backend->Attend(0, spaces_, {&asked, 1}, {}, &observer);
    outcome.mass = std::move(observer.mass);
    return outcome;
  }

  // That `part` is what `all` has from its query `first` on, bit for bit.
  static void ExpectPartOf(const Outcome& part, const Outcome& all, int first) {
    ASSERT_OK(part.status);
    const auto same = [first](const std::vector<float>& a, const std::vector<float>& b,
                              size_t floats) {
      const size_t begin = static_cast<size_t>(first) * floats;
      return begin + a.size() <= b.size() &&
             std::memcmp(a.data(), b.data() + begin, a.size() * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(part.output, all.output, size_t{kHeads} * 32));
    EXPECT_TRUE(same(part.log_sum_exp, all.log_sum_exp, kHeads));
    EXPECT_TRUE(same(part.mass, all.mass, size_t{kHeads} * kPages));
  }

  const CacheShape shape_ = {.num_layers = 1,
                             .num_kv_heads = 4,
                             .group_size = 7,
                             .key_dim = 32,
                             .value_dim = 32,
                             .page_tokens = 16};
  const Rung& f16_ = TestRung("f16");
  const Rung& q8_ = TestRung("q8_0");
  TestRandom random_{17};
  PageStore store_{shape_, PoolShare(SystemPageMemory(), 0)};
  PageSchedule schedule_{.page_tokens = 16, .open_rung = &f16_, .from_age = {0}};
  PageTable table_{&schedule_};
  LayerSpaces spaces_;
  std::vector<float> queries_;
};

TEST_F(CpuBackendManySplits, AreMergedAlikeByAnyNumberOfThreadsAndInChunks) {
  const Outcome one_chunk = Attend(1, 1, 9);
  ASSERT_OK(one_chunk.status);
  for (const int threads : {2, 5}) ExpectPartOf(Attend(threads, 1, 9), one_chunk, 0);
  for (int query = 1; query < kQueries; ++query)
    ExpectPartOf(Attend(2, query, 1), one_chunk, query - 1);
  ExpectPartOf(one_chunk, Attend(5, 0, kQueries), 1);
}

TEST_F(CpuBackendManySplits, GiveTheSumsOfDoublePrecision) {
  const Outcome outcome = Attend(2, 9, 1);
  // Of the last query's first head and its last one.
  for (const int head : {0, kHeads - 1}) {
    const float* asks = queries_.data() + static_cast<ptrdiff_t>(9 * kHeads + head) * 32;
    std::vector<double> sum(32);
    double total = 0;
    for (const TableEntry& entry : table_.entries()) {
      const std::vector<float> keys = RowsOf(store_, *entry.page, Part::kKey, head / 7);
      const std::vector<float> values = RowsOf(store_, *entry.page, Part::kValue, head / 7);
      for (int row = 0; row < entry.rows; ++row) {
        double score = 0;
        for (int d = 0; d < 32; ++d) score += double{asks[d]} * keys[row * 32 + d];
        const double weight = std::exp(score / std::sqrt(32.0));
        total += weight;
        for (int d = 0; d < 32; ++d) sum[d] += weight * values[row * 32 + d];
      }
    }
    for (int d = 0; d < 32; ++d)
      EXPECT_NEAR(outcome.output[head * 32 + d], sum[d] / total, 4e-3) << head << " " << d;
  }
}

}  // namespace cpu_backend_test
}  // namespace varve

// What a cache may be made with in C beyond shape and plan: constants of the model, the program's
// own threads, memory and observers, a shared pool; and how the options grow.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "c_api/c_api_testing.h"
#include "fold/compressor_testing.h"
#include "rungs/pq/codebook_testing.h"

namespace varve {
namespace c_api_options_test {

class CApiOptions : public CApi {};

TEST_F(CApiOptions, OfTheFirstVersionAreAcceptedAndTheRestCountsAsZero) {
  varve_cache_options options = OneThread();
  options.struct_size = offsetof(varve_cache_options, codebook);
  options.pool = reinterpret_cast<varve_page_pool*>(1);  // not part of that version: never read
  Open("q8_0", options);
  Step(3);
  options.struct_size -= 1;
  varve_cache* cache = nullptr;
  const varve_shape shape = SmallShape();
  EXPECT_EQ(varve_cache_create(&shape, "", &options, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.struct_size " + std::to_string(options.struct_size));
}

TEST_F(CApiOptions, ACodebookFromMemoryServesAPlanWithPq) {
  Codebook tables;
  tables.num_layers = kLayers;
  tables.num_kv_heads = kKvHeads;
  for (const Part part : {Part::kKey, Part::kValue}) {
    tables.tables.push_back(RandomCodebookTable(part, kDim, 16, 8, CodebookGrain::kModel, 1, 1));
  }
  const std::vector<std::byte> bytes = SerializeCodebook(tables);
  varve_codebook* codebook = nullptr;
  ASSERT_EQ(varve_codebook_parse(bytes.data(), bytes.size(), &codebook), VARVE_OK)
      << varve_last_error();
  varve_cache_options options = OneThread();
  options.codebook = codebook;
  Open("pq16x8,open=0,exact=0", options);
  varve_codebook_free(codebook);
  for (int i = 0; i < 3; ++i) Step(kPage);
  EXPECT_GT(Stats().bytes_codebooks, 0u);
  EXPECT_GT(Stats().pages_sealed, 0u);

  codebook = nullptr;
  EXPECT_EQ(varve_codebook_parse("nonsense", 8, &codebook), VARVE_INVALID_ARGUMENT);
  EXPECT_NE(varve_codebook_load("/nowhere/at/all", &codebook), VARVE_OK);
  EXPECT_EQ(varve_codebook_parse(nullptr, 0, &codebook), VARVE_INVALID_ARGUMENT);
  EXPECT_EQ(codebook, nullptr);
  varve_codebook_free(nullptr);
}

TEST_F(CApiOptions, ACompressorFromMemoryFoldsAPrompt) {
  CompressorSpec spec;
  spec.num_layers = kLayers;
  spec.head_dim = kDim;
  spec.has_image = false;
  const std::vector<std::byte> bytes = SerializeCompressor(RandomCompressor(spec));
  varve_compressor* compressor = nullptr;
  ASSERT_EQ(varve_compressor_parse(bytes.data(), bytes.size(), &compressor), VARVE_OK)
      << varve_last_error();
  varve_cache_options options = OneThread();
  options.compressor = compressor;
  Open("fold=shipped", options);
  varve_compressor_free(compressor);
  for (int i = 0; i < 3; ++i) Step(kPage);
  ASSERT_EQ(varve_sequence_end_prompt(cache_, sequence_), VARVE_OK) << varve_last_error();
  EXPECT_EQ(Stats().fold_prompts, 1u);

  compressor = nullptr;
  EXPECT_EQ(varve_compressor_parse("nonsense", 8, &compressor), VARVE_INVALID_ARGUMENT);
  EXPECT_NE(varve_compressor_load("/nowhere/at/all", &compressor), VARVE_OK);
  EXPECT_EQ(compressor, nullptr);
  varve_compressor_free(nullptr);
}

// Backwards, on one thread, under the numbers of three workers.
void ParallelFor(size_t count, varve_task task, void* task_data, void* user_data) {
  ++*static_cast<int*>(user_data);
  for (size_t i = count; i-- > 0;) task(i, static_cast<int32_t>(i % 3), task_data);
}

TEST_F(CApiOptions, TheProgramsOwnThreadsGiveTheSameResult) {
  Step(kPage);
  Step(1);
  const std::vector<float> expected = output_;
  int calls = 0;
  varve_cache_options options = OneThread();
  options.parallel_for = ParallelFor;
  options.parallel_for_data = &calls;
  options.parallel_for_threads = 3;
  Open("q8_0", options);
  Step(kPage);
  Step(1);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(output_, expected);
}

struct Told {
  int events = 0;
  int dropped = 0;
  int64_t pages = 0;
};

void OnRetention(const varve_retention_event* event, void* user_data) {
  auto* told = static_cast<Told*>(user_data);
  EXPECT_EQ(event->struct_size, sizeof(*event));
  ++told->events;
  told->pages += static_cast<int64_t>(event->num_pages);
  for (size_t i = 0; i < event->num_pages; ++i) {
    const varve_page_decision& decision = event->pages[i];
    told->dropped += decision.fate == VARVE_DROPPED;
    EXPECT_EQ(std::strlen(decision.rung) == 0, decision.fate == VARVE_DROPPED);
  }
}

TEST_F(CApiOptions, ARetentionObserverIsToldWhatAPolicyDid) {
  Told told;
  varve_cache_options options = OneThread();
  options.retention_observer = OnRetention;
  options.retention_data = &told;
  Open("evict=h2o,trigger=16,every=16,sink=16,recent=16,ratio=2", options);
  for (int i = 0; i < 10; ++i) Step(kPage);
  EXPECT_GT(told.events, 0);
  EXPECT_GT(told.pages, 0);
  EXPECT_GT(told.dropped, 0);
}

TEST_F(CApiOptions, AnAttentionObserverLearnsThePositionsOfTheQueries) {
  std::vector<int64_t> positions;
  varve_cache_options options = OneThread();
  options.observer = [](const varve_attention_mass* mass, void* user_data) {
    if (mass->layer == 0) {
      static_cast<std::vector<int64_t>*>(user_data)->push_back(mass->first_position);
    }
  };
  options.user_data = &positions;
  Open("q8_0", options);
  Step(3);
  Step(5);
  Step(1);
  EXPECT_EQ(positions, (std::vector<int64_t>{0, 3, 8}));
}

void* Map(size_t bytes, void* user_data) {
  ++*static_cast<int*>(user_data);
  return std::aligned_alloc(size_t{2} << 20, bytes);
}
void Discard(void*, size_t, void*) {}
void Unmap(void* address, size_t, void* user_data) {
  --*static_cast<int*>(user_data);
  std::free(address);
}

TEST_F(CApiOptions, PagesMayLieInTheProgramsOwnMemory) {
  int mapped = 0;
  varve_page_memory memory = {Map, Discard, Unmap, &mapped};
  varve_cache_options options = OneThread();
  options.memory = &memory;
  Open("q8_0", options);
  Step(kPage);
  EXPECT_GT(mapped, 0);
  varve_cache_destroy(cache_);
  cache_ = nullptr;
  EXPECT_EQ(mapped, 0);

  memory.discard = nullptr;
  const varve_shape shape = SmallShape();
  EXPECT_EQ(varve_cache_create(&shape, "", &options, &cache_), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.memory: map, discard or unmap is null");
}

TEST_F(CApiOptions, CachesMayShareAPool) {
  varve_page_pool* pool = nullptr;
  ASSERT_EQ(varve_page_pool_create(4 << 20, &pool), VARVE_OK);
  varve_cache_options options = OneThread();
  options.pool = pool;
  Open("q8_0", options);
  const varve_shape shape = SmallShape();
  varve_cache* second = nullptr;
  ASSERT_EQ(varve_cache_create(&shape, "", &options, &second), VARVE_OK) << varve_last_error();
  Step(kPage);
  uint64_t bytes = 0;
  ASSERT_EQ(varve_page_pool_bytes_held(pool, &bytes), VARVE_OK);
  EXPECT_GT(bytes, 0u);
  varve_page_pool_free(pool);
  Step(kPage);
  varve_cache_destroy(second);

  options.max_bytes = 1;
  EXPECT_EQ(varve_page_pool_create(0, &options.pool), VARVE_OK);
  varve_cache* none = nullptr;
  EXPECT_EQ(varve_cache_create(&shape, "", &options, &none), VARVE_INVALID_ARGUMENT);
  ErrorSays("max_bytes 1 is not 0");
  varve_page_pool_free(options.pool);
}

TEST_F(CApiOptions, AreChecked) {
  const varve_shape shape = SmallShape();
  varve_cache* cache = nullptr;
  varve_cache_options options = OneThread();
  options.parallel_for_threads = 4;
  EXPECT_EQ(varve_cache_create(&shape, "", &options, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.parallel_for_threads 4 requires parallel_for");
  options.parallel_for = ParallelFor;
  options.parallel_for_threads = 0;
  EXPECT_EQ(varve_cache_create(&shape, "", &options, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.parallel_for_threads 0 is outside 1");
  options = OneThread();
  options.time_stages = 2;
  EXPECT_EQ(varve_cache_create(&shape, "", &options, &cache), VARVE_INVALID_ARGUMENT);
  ErrorSays("options.time_stages 2 is not 0 or 1");
}

// --- tensors and blocks ---

TEST_F(CApiOptions, TensorsOfF16GiveTheResultOfTheirValues) {
  std::vector<uint16_t> halves(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    halves[i] = F32ToF16(rows_[i]);
    rows_[i] = F16ToF32(halves[i]);
  }
  Step(4);
  const std::vector<float> expected(output_.begin(),
                                    output_.begin() + 4 * kKvHeads * kGroup * kDim);
  const uint64_t other = sequence_;
  ASSERT_EQ(varve_sequence_create(cache_, &sequence_), VARVE_OK);
  ASSERT_NE(sequence_, other);
  ASSERT_EQ(Begin(4), VARVE_OK);
  const varve_tensor rows = {halves.data(), VARVE_F16, VARVE_CPU, 0, 0};
  std::vector<uint16_t> narrow(expected.size());
  varve_attend_tensors_request request = {};
  request.sequence = sequence_;
  request.num_queries = 4;
  request.queries = rows;
  request.output = {narrow.data(), VARVE_F16, VARVE_CPU, 0, 0};
  for (int layer = 0; layer < kLayers; ++layer) {
    ASSERT_EQ(varve_step_append_tensors(cache_, layer, sequence_, 4, &rows, &rows), VARVE_OK)
        << varve_last_error();
    ASSERT_EQ(varve_attend_tensors(cache_, layer, &request, 1, nullptr), VARVE_OK)
        << varve_last_error();
  }
  ASSERT_EQ(varve_step_end(cache_), VARVE_OK);
  for (size_t i = 0; i < narrow.size(); ++i) ASSERT_EQ(narrow[i], F32ToF16(expected[i])) << i;

  ASSERT_EQ(Begin(1), VARVE_OK);
  const varve_tensor elsewhere = {halves.data(), VARVE_F16, VARVE_CUDA, 0, 0};
  EXPECT_EQ(varve_step_append_tensors(cache_, 0, sequence_, 1, &elsewhere, &rows),
            VARVE_UNIMPLEMENTED);
  EXPECT_FALSE(StepIsOpen());
}

TEST_F(CApiOptions, BlocksGoInAndOutBitForBit) {
  Open("q8_0,open_rung=f32", OneThread());
  // One block a row and head: a scale of 1, codes with a 127 among them.
  std::vector<unsigned char> blocks(3 * kKvHeads * 34);
  for (size_t b = 0; b < 3 * kKvHeads; ++b) {
    unsigned char* block = &blocks[b * 34];
    block[1] = 0x3C;
    for (size_t i = 0; i < 32; ++i) block[2 + i] = static_cast<unsigned char>(i + b);
    block[2] = 127;
  }
  const varve_block_rows rows = {blocks.data(), 3, VARVE_Q8_0, 0};
  ASSERT_EQ(Begin(3), VARVE_OK);
  for (int layer = 0; layer < kLayers; ++layer) {
    ASSERT_EQ(varve_step_import_blocks(cache_, layer, sequence_, &rows, &rows), VARVE_OK)
        << varve_last_error();
  }
  ASSERT_EQ(varve_step_end(cache_), VARVE_OK);
  std::vector<unsigned char> out(blocks.size());
  int64_t count = 0;
  ASSERT_EQ(varve_export_blocks(cache_, sequence_, 1, VARVE_VALUE, VARVE_Q8_0, 0, 3, out.data(),
                                out.size(), &count),
            VARVE_OK)
      << varve_last_error();
  EXPECT_EQ(count, 3);
  EXPECT_EQ(out, blocks);
  EXPECT_EQ(varve_export_blocks(cache_, sequence_, 1, VARVE_VALUE, VARVE_Q8_0, 0, 3, out.data(),
                                out.size() - 1, &count),
            VARVE_INVALID_ARGUMENT);
  ErrorSays("out_bytes 203 < 3 rows of 68");
  EXPECT_EQ(
      varve_export_blocks(cache_, sequence_, 1, VARVE_KEY, 9, 0, 1, out.data(), out.size(), &count),
      VARVE_INVALID_ARGUMENT);
  ErrorSays("format 9");
}

}  // namespace c_api_options_test
}  // namespace varve

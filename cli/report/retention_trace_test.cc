#include "cli/report/retention_trace.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cli/report/trace_document.h"
#include "cli/report/trace_grid.h"
#include "tests/gguf_testing.h"

namespace varve::cli {
namespace retention_trace_test {

using Json = nlohmann::ordered_json;

// Two layers, two moments: the second page of layer 0 is demoted, then dropped; layer 1 drops it.
RetentionTrace Sample() {
  RetentionTrace trace;
  trace.plan = "evict=demote";
  trace.model = "<tiny> & co";
  trace.num_layers = 3;
  trace.page_tokens = 64;
  trace.prompt_tokens = 200;
  trace.end_position = 230;
  trace.f16_row_bytes = 512;
  const uint8_t f16 = trace.RungIndex("f16");
  const uint8_t q4 = trace.RungIndex("q4_0r");
  using Fate = PageFate;
  trace.events = {
      {192,
       0,
       40000,
       39000,
       false,
       {{0, 64, 0.5f, Fate::kKept, f16},
        {64, 64, 0.1f, Fate::kDemoted, q4},
        {128, 64, 0.4f, Fate::kKept, f16}}},
      {192,
       2,
       40000,
       38000,
       true,
       {{0, 64, 0.5f, Fate::kKept, f16},
        {64, 64, 0.2f, Fate::kDropped, 0},
        {128, 64, 0.3f, Fate::kKept, f16}}},
      {208,
       0,
       41000,
       36000,
       false,
       {{0, 64, 0.5f, Fate::kKept, f16},
        {64, 64, 0.0625f, Fate::kDropped, 0},
        {128, 64, 0.4f, Fate::kKept, f16},
        {192, 16, 0.1f, Fate::kKept, f16}}},
      {208,
       2,
       41000,
       38500,
       false,
       {{0, 64, 0.5f, Fate::kKept, f16},
        {128, 64, 0.3f, Fate::kKept, f16},
        {192, 16, 0.2f, Fate::kKept, f16}}},
  };
  return trace;
}

const TraceCell* CellAt(const TraceGrid& grid, int64_t first, size_t row) {
  for (const TraceCell& cell : grid.cells) {
    if (cell.first == first && cell.begin_row <= row && row < cell.end_row) return &cell;
  }
  return nullptr;
}

TEST(RetentionTrace, LinesReadBackAsTheyWere) {
  const RetentionTrace trace = Sample();
  const std::string text = PrintTrace(trace);
  const Result<RetentionTrace> read = ParseTrace(text);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(PrintTrace(*read), text);
  EXPECT_EQ(read->model, trace.model);
  ASSERT_EQ(read->events.size(), 4u);
  EXPECT_EQ(read->events[2].pages[1].fate, PageFate::kDropped);
  EXPECT_EQ(read->events[2].pages[1].score, 0.0625f);
  EXPECT_EQ(read->rungs[read->events[0].pages[1].rung], "q4_0r");
}

TEST(RetentionTrace, RefusesLinesThatMakeNoSense) {
  const std::string text = PrintTrace(Sample());
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    const Result<RetentionTrace> read = ParseTrace(changed);
    EXPECT_FALSE(read.ok()) << to;
    return read.ok() ? std::string() : read.status().message();
  };
  EXPECT_EQ(refused("\"varve_trace\":1", "\"varve_trace\":2"),
            "trace: line 1: varve_trace 2: not a whole number from 1 to 1");
  EXPECT_EQ(refused("\"layer\":0", "\"layer\":3"),
            "trace: line 2: layer 3: not a whole number from 0 to 2");
  EXPECT_EQ(refused("\"layer\":2", "\"layer\":\"2\""),
            "trace: line 3: layer \"2\": not a whole number from 0 to 2");
  EXPECT_EQ(refused("\"step\":192,", ""), "trace: line 2: step is missing");
  EXPECT_EQ(refused("\"first\":64", "\"first\":-1"),
            "trace: line 2: first -1: not a whole number from 0 to 1099511627776");
  EXPECT_EQ(refused("\"first\":64", "\"first\":0"), "trace: line 2: first 0: pages do not ascend");
  EXPECT_EQ(refused("\"length\":64", "\"length\":1e9"),
            "trace: line 2: length 1000000000.0: not a whole number from 1 to 4096");
  EXPECT_EQ(refused("\"held_bytes\":39000", "\"held_bytes\":18446744073709551615"),
            "trace: line 2: held_bytes 18446744073709551615: not a whole number from 0 to "
            "1152921504606846976");
  EXPECT_EQ(refused("\"kept\"", "\"lost\""), "trace: line 2: fate \"lost\": unknown");
  EXPECT_EQ(refused("\"pages\":[", "\"pages\":7,\"x\":["), "trace: line 2: pages: not an array");
  EXPECT_EQ(refused("{\"step\"", "[\"step\""), "trace: line 2: not JSON");
  EXPECT_FALSE(ParseTrace("").ok());
  EXPECT_FALSE(ParseTrace("[]\n").ok());
}

TEST(RetentionTrace, ThePictureOfALayerShowsRungsAndDrops) {
  const TraceGrid grid = MakeTraceGrid(Sample(), 0);
  ASSERT_EQ(grid.steps, (std::vector<int64_t>{192, 208}));
  EXPECT_EQ(CellAt(grid, 0, 0), CellAt(grid, 0, 1));  // one cell through both moments
  EXPECT_DOUBLE_EQ(CellAt(grid, 0, 0)->bits, 16);
  EXPECT_DOUBLE_EQ(CellAt(grid, 64, 0)->bits, 4.5);
  EXPECT_DOUBLE_EQ(CellAt(grid, 64, 1)->bits, 0);
  EXPECT_EQ(CellAt(grid, 192, 0), nullptr);
  EXPECT_EQ(CellAt(grid, 192, 1)->length, 16);
  EXPECT_EQ(grid.held_bytes, (std::vector<double>{39000, 36000}));
  EXPECT_EQ(grid.f16_bytes, (std::vector<double>{192 * 512, 208 * 512}));
  // A page that is gone is not drawn.
  const TraceGrid second = MakeTraceGrid(Sample(), 2);
  EXPECT_DOUBLE_EQ(CellAt(second, 64, 0)->bits, 0);
  EXPECT_EQ(CellAt(second, 64, 1), nullptr);
}

TEST(RetentionTrace, TheMeanIsOverTheLayersThatPlanned) {
  const TraceGrid grid = MakeTraceGrid(Sample(), kAllLayers);
  EXPECT_DOUBLE_EQ(CellAt(grid, 0, 0)->bits, 16);
  EXPECT_DOUBLE_EQ(CellAt(grid, 64, 0)->bits, 2.25);
  EXPECT_EQ(CellAt(grid, 64, 1), nullptr);
  EXPECT_EQ(grid.held_bytes, (std::vector<double>{77000, 74500}));
  EXPECT_EQ(grid.f16_bytes[1], 2 * 208 * 512);
}

TEST(RetentionTrace, LayersAreSummed) {
  const std::vector<LayerSummary> layers = SummariseLayers(Sample());
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].layer, 0);
  EXPECT_EQ(layers[0].demoted, 1);
  EXPECT_EQ(layers[0].dropped, 1);
  EXPECT_EQ(layers[0].held_bytes, 36000u);
  EXPECT_DOUBLE_EQ(layers[0].ratio(), 208.0 * 512 / 36000);
  EXPECT_EQ(layers[1].layer, 2);
  EXPECT_EQ(layers[1].floors_bound, 1);
}

TEST(RetentionTrace, TheDocumentHasTheMeanAndEachLayer) {
  const Json document = TraceDocument(Sample());
  EXPECT_EQ(document["kind"], "trace");
  EXPECT_EQ(document["model"]["name"], "<tiny> & co");
  const Json& trace = document["cases"][0]["trace"];
  ASSERT_EQ(trace["views"].size(), 3u);  // the mean, layers 0 and 2
  EXPECT_TRUE(trace["views"][0]["layer"].is_null());
  EXPECT_EQ(trace["views"][2]["layer"], 2);
  EXPECT_EQ(trace["layers"][0]["dropped_pages"], 1);
  // first, length, begin row, end row, rung, bits, score: page 64 is dropped at 208.
  const Json dropped = {64, 64, 1, 2, 0, 0.0, 0.0625};
  const Json& cells = trace["views"][1]["cells"];
  EXPECT_NE(std::find(cells.begin(), cells.end(), dropped), cells.end()) << cells;
  RetentionTrace empty = Sample();
  empty.events.clear();
  EXPECT_TRUE(TraceJson(empty)["views"].empty());
}

TEST(RetentionTrace, SpansCoverEveryTokenOfEveryLayer) {
  RetentionTrace trace = Sample();
  trace.events.resize(2);  // layer 0 has demoted page 64, layer 2 dropped it
  const Json spans = SpansJson(trace);
  ASSERT_EQ(spans["layers"].size(), 3u);
  for (const Json& layer : spans["layers"]) {
    int64_t end = 0;
    for (const Json& span : layer["spans"]) {
      EXPECT_EQ(span["begin"], end);
      end = span["end"];
    }
    EXPECT_EQ(end, 230);
  }
  EXPECT_EQ(spans["layers"][0]["spans"][1],
            (Json{{"begin", 64}, {"end", 128}, {"fate", "demoted"}, {"rung", "q4_0r"}}));
  EXPECT_EQ(spans["layers"][1]["spans"].size(), 1u);  // without a policy
  EXPECT_EQ(spans["layers"][2]["spans"][1]["fate"], "dropped");
  EXPECT_TRUE(HasFates(spans));
  trace.events.clear();
  EXPECT_FALSE(HasFates(SpansJson(trace)));
}

// A page that was demoted stays so, also where later plans keep it.
TEST(RetentionTrace, ADemotedPageStaysDemoted) {
  RetentionTrace trace = Sample();
  trace.events.resize(3);
  trace.events[2].pages[1].fate = PageFate::kKept;
  trace.events[2].pages[1].rung = trace.RungIndex("q4_0r");
  EXPECT_EQ(SpansJson(trace)["layers"][0]["spans"][1]["fate"], "demoted");
}

TEST(RetentionTrace, ARecorderFollowsOneSequence) {
  TraceRecorder recorder;
  RetentionEvent event;
  event.sequence = SequenceId{7};
  recorder.OnRetention(event);
  recorder.Follow(SequenceId{8});
  recorder.OnRetention(event);
  EXPECT_EQ(recorder.trace().events.size(), 1u);
}

TEST(RetentionTrace, AFileIsKnownByItsBeginning) {
  const TempFolder folder;
  ASSERT_TRUE(WriteTrace(folder.File("a.jsonl"), Sample()).ok());
  ASSERT_TRUE(WriteTrace(folder.File("a.html"), Sample()).ok());
  EXPECT_TRUE(IsTraceFile(folder.File("a.jsonl")));
  EXPECT_FALSE(IsTraceFile(folder.File("a.html")));
  EXPECT_FALSE(IsTraceFile(folder.File("absent")));
  EXPECT_FALSE(WriteTrace(folder.File("absent/a.jsonl"), Sample()).ok());
}

}  // namespace retention_trace_test
}  // namespace varve::cli

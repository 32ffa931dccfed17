#include "cli/report/retention_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "cli/model_argument.h"
#include "cli/report/output.h"
#include "cli/report/report_page.h"
#include "cli/report/trace_document.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kMagic = "{\"varve_trace\":";
constexpr int64_t kMaxPosition = int64_t{1} << 40;
constexpr int64_t kMaxBytes = int64_t{1} << 60;
constexpr std::array<std::string_view, 3> kFates = {"kept", "demoted", "dropped"};

std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Reads members of one line; the first thing that is wrong stays in status().
class LineReader {
 public:
  LineReader(const Json& json, size_t number) : json_(json), number_(number) {}

  int64_t Integer(const char* key, int64_t least, int64_t most) {
    const Json* value = Find(key);
    if (value == nullptr) return least;
    const bool fits =
        value->is_number_integer() && (!value->is_number_unsigned() ||
                                       value->get<uint64_t>() <= static_cast<uint64_t>(kMaxBytes));
    const int64_t number = fits ? value->get<int64_t>() : 0;
    if (fits && number >= least && number <= most) return number;
    Fail(fmt::format("{} {}: not a whole number from {} to {}", key, value->dump(), least, most));
    return least;
  }
  std::string Text(const char* key) {
    const Json* value = Find(key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    if (value != nullptr) Fail(fmt::format("{}: not a string", key));
    return "";
  }
  float Score(const char* key) {
    const Json* value = Find(key);
    if (value != nullptr && value->is_number()) return value->get<float>();
    if (value != nullptr && !value->is_null()) Fail(fmt::format("{}: not a number", key));
    return 0;
  }
  bool Flag(const char* key) {
    const Json* value = Find(key);
    if (value != nullptr && value->is_boolean()) return value->get<bool>();
    if (value != nullptr) Fail(fmt::format("{}: not true or false", key));
    return false;
  }
  const Json* Array(const char* key) {
    const Json* value = Find(key);
    if (value != nullptr && value->is_array()) return value;
    if (value != nullptr) Fail(fmt::format("{}: not an array", key));
    return nullptr;
  }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = InvalidArgument(fmt::format("trace: line {}: {}", number_, what));
  }
  const Status& status() const { return status_; }

 private:
  const Json* Find(const char* key) {
    const auto found = json_.is_object() ? json_.find(key) : json_.end();
    if (json_.is_object() && found != json_.end()) return &*found;
    Fail(fmt::format("{} is missing", key));
    return nullptr;
  }

  const Json& json_;
  size_t number_;
  Status status_;
};

Status ReadHeader(const Json& json, RetentionTrace* trace) {
  LineReader reader(json, 1);
  reader.Integer("varve_trace", 1, 1);
  trace->plan = reader.Text("plan");
  trace->model = reader.Text("model");
  trace->num_layers = static_cast<int>(reader.Integer("num_layers", 1, 1024));
  trace->page_tokens = static_cast<int>(reader.Integer("page_tokens", 1, 4096));
  trace->prompt_tokens = reader.Integer("prompt_tokens", 0, kMaxPosition);
  trace->end_position = reader.Integer("end_position", 0, kMaxPosition);
  trace->f16_row_bytes = static_cast<uint64_t>(reader.Integer("f16_row_bytes", 1, 1 << 30));
  return reader.status();
}

Status ReadPage(const Json& json, size_t number, RetentionTrace* trace,
                RetentionTrace::Event* event) {
  LineReader reader(json, number);
  RetentionTrace::Page page;
  page.first = reader.Integer("first", 0, kMaxPosition);
  page.length = static_cast<int32_t>(reader.Integer("length", 1, 4096));
  page.score = reader.Score("score");
  const std::string fate = reader.Text("fate");
  const auto found = std::find(kFates.begin(), kFates.end(), fate);
  if (found == kFates.end()) reader.Fail(fmt::format("fate \"{}\": unknown", fate));
  page.fate = static_cast<PageFate>(found - kFates.begin());
  const std::string rung = reader.Text("rung");
  if (trace->rungs.size() > 200) reader.Fail("more than 200 different rungs");
  if (!event->pages.empty() && event->pages.back().first >= page.first) {
    reader.Fail(fmt::format("first {}: pages do not ascend", page.first));
  }
  VARVE_RETURN_IF_ERROR(reader.status());
  page.rung = trace->RungIndex(rung);
  event->pages.push_back(page);
  return Status();
}

Status ReadEvent(const Json& json, size_t number, RetentionTrace* trace) {
  LineReader reader(json, number);
  RetentionTrace::Event event;
  event.step = reader.Integer("step", 0, kMaxPosition);
  event.layer = static_cast<int>(reader.Integer("layer", 0, trace->num_layers - 1));
  event.target_bytes = static_cast<uint64_t>(reader.Integer("target_bytes", 0, kMaxBytes));
  event.held_bytes = static_cast<uint64_t>(reader.Integer("held_bytes", 0, kMaxBytes));
  event.floors_bind = reader.Flag("floors_bind");
  const Json* pages = reader.Array("pages");
  VARVE_RETURN_IF_ERROR(reader.status());
  for (const Json& page : *pages) VARVE_RETURN_IF_ERROR(ReadPage(page, number, trace, &event));
  trace->events.push_back(std::move(event));
  return Status();
}

}  // namespace

uint8_t RetentionTrace::RungIndex(std::string_view rung) {
  const auto found = std::find(rungs.begin(), rungs.end(), rung);
  const auto index = static_cast<size_t>(found - rungs.begin());
  if (found == rungs.end()) rungs.emplace_back(rung);
  return static_cast<uint8_t>(index);
}

void TraceRecorder::OnRetention(const RetentionEvent& event) {
  if (followed_ && !(event.sequence == *followed_)) return;
  RetentionTrace::Event& traced = trace_.events.emplace_back();
  traced.step = event.next_position;
  traced.layer = event.layer;
  traced.target_bytes = event.target_bytes;
  traced.held_bytes = event.held_bytes;
  traced.floors_bind = event.floors_bind;
  traced.pages.reserve(event.pages.size());
  for (const PageDecision& decision : event.pages) {
    traced.pages.push_back(
        {decision.page.first_position, static_cast<int32_t>(decision.page.num_positions),
         static_cast<float>(decision.score), decision.fate, trace_.RungIndex(decision.rung)});
  }
}

Status DescribeTrace(const Cache& cache, SequenceId sequence, RetentionTrace* trace) {
  const CacheShape& shape = cache.shape();
  trace->num_layers = shape.num_layers;
  trace->page_tokens = shape.page_tokens;
  VARVE_ASSIGN_OR_RETURN(trace->end_position, cache.NextPosition(sequence));
  trace->f16_row_bytes =
      2 * static_cast<uint64_t>(shape.num_kv_heads) * (shape.key_dim + shape.value_dim);
  return Status();
}

std::string PrintTrace(const RetentionTrace& trace) {
  std::string text = Line({{"varve_trace", 1},
                           {"plan", trace.plan},
                           {"model", trace.model},
                           {"num_layers", trace.num_layers},
                           {"page_tokens", trace.page_tokens},
                           {"prompt_tokens", trace.prompt_tokens},
                           {"end_position", trace.end_position},
                           {"f16_row_bytes", trace.f16_row_bytes}});
  for (const RetentionTrace::Event& event : trace.events) {
    Json pages = Json::array();
    for (const RetentionTrace::Page& page : event.pages) {
      pages.push_back({{"first", page.first},
                       {"length", page.length},
                       {"score", page.score},
                       {"fate", kFates[static_cast<size_t>(page.fate)]},
                       {"rung", trace.rungs[page.rung]}});
    }
    text += Line({{"step", event.step},
                  {"layer", event.layer},
                  {"target_bytes", event.target_bytes},
                  {"held_bytes", event.held_bytes},
                  {"floors_bind", event.floors_bind},
                  {"pages", std::move(pages)}});
  }
  return text;
}

Result<RetentionTrace> ParseTrace(std::string_view text) {
  RetentionTrace trace;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.empty()) continue;
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded()) {
      return InvalidArgument(fmt::format("trace: line {}: not JSON", number));
    }
    VARVE_RETURN_IF_ERROR(number == 1 ? ReadHeader(json, &trace) : ReadEvent(json, number, &trace));
  }
  if (trace.num_layers == 0) return InvalidArgument("trace: line 1: no header");
  return trace;
}

bool IsTraceFile(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) return false;
  std::array<char, kMagic.size()> begin;
  const size_t got = std::fread(begin.data(), 1, begin.size(), file.get());
  return std::string_view(begin.data(), got) == kMagic;
}

Status WriteTrace(const std::string& path, const RetentionTrace& trace) {
  if (path.ends_with(".html")) {
    return WriteReport(path, "What the cache kept", TraceDocument(trace));
  }
  return WriteText(path, PrintTrace(trace));
}

int InspectTrace(const InspectTraceOptions& options) {
  Result<std::string> text = ReadTextFile(options.path);
  if (!text.ok()) return ReportError(text.status());
  Result<RetentionTrace> trace = ParseTrace(*text);
  if (!trace.ok()) return ReportError(trace.status());
  const std::vector<LayerSummary> layers = SummariseLayers(*trace);
  std::FILE* out = options.json == "-" ? stderr : stdout;
  fmt::print(out, "trace of {} with {}: {} tokens, {} of them prompt; pages of {} tokens\n",
             trace->model, trace->plan, trace->end_position, trace->prompt_tokens,
             trace->page_tokens);
  TextTable table({">layer", ">plans", ">dropped", ">demoted", ">held", ">target", ">f16", ">ratio",
                   ">floors bind"});
  Json rows = Json::array();
  for (const LayerSummary& layer : layers) {
    table.AddRow({fmt::format("{}", layer.layer), fmt::format("{}", layer.plans),
                  fmt::format("{}", layer.dropped), fmt::format("{}", layer.demoted),
                  HumanBytes(static_cast<double>(layer.held_bytes)),
                  HumanBytes(static_cast<double>(layer.target_bytes)),
                  HumanBytes(static_cast<double>(layer.f16_bytes)),
                  fmt::format("{:.2f}", layer.ratio()),
                  layer.floors_bound == 0 ? "" : fmt::format("{}", layer.floors_bound)});
    rows.push_back(LayerRow(layer));
  }
  table.Print(out);
  fmt::print(out, "bytes and ratio are those of the layer's last plan, in pages as held\n");
  if (!options.picture.empty()) {
    if (!options.picture.ends_with(".html")) {
      return ReportError(
          InvalidArgument(fmt::format("--picture \"{}\": does not end in .html", options.picture)));
    }
    const Status written = WriteTrace(options.picture, *trace);
    if (!written.ok()) return ReportError(written);
    fmt::print(out, "the picture: {}\n", options.picture);
  }
  if (options.json.empty()) return kExitDone;
  const Status written = WriteJson(options.json, "inspect", rows);
  return written.ok() ? kExitDone : ReportError(written);
}

}  // namespace varve::cli

#include "cli/inspect/inspect_model.h"

#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cli/inspect/model_lists.h"
#include "cli/inspect/model_summary.h"
#include "cli/report/output.h"
#include "runtime/gguf/gguf_file.h"

namespace varve::cli {
namespace {

using Json = nlohmann::ordered_json;

// A word that is neither a topic nor a file was perhaps meant as a topic.
Status WithTopics(const Status& status, const std::string& path) {
  if (status.code() != StatusCode::kNotFound || path.find_first_of("./") != std::string::npos) {
    return status;
  }
  return NotFound(status.message() + ", and no topic: machine, isa, rungs and plan are");
}

}  // namespace

int InspectModel(const InspectModelOptions& options) {
  Result<std::shared_ptr<const GgufFile>> opened = GgufFile::Open(options.path);
  if (!opened.ok()) return ReportError(WithTopics(opened.status(), options.path));
  const GgufFile& file = **opened;
  const ModelSummary summary = SummarizeModel(file);
  if (options.json != "-") {
    const std::string text = RenderSummary(summary, UseColour(stdout));
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (options.metadata) {
      fmt::print("\n");
      MetadataTable(file).Print(stdout);
    }
    if (options.tensors) {
      fmt::print("\n");
      TensorTable(file).Print(stdout);
    }
  }
  if (options.json.empty()) return kExitDone;
  Json row = SummaryJson(summary);
  if (options.metadata) row["metadata"] = MetadataJson(file);
  if (options.tensors) row["tensors"] = TensorJson(file);
  const Status written = WriteJson(options.json, "inspect", Json::array({std::move(row)}));
  return written.ok() ? kExitDone : ReportError(written);
}

}  // namespace varve::cli

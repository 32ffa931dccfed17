#include "cli/eval/eval_wer.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/timer.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "runtime/audio/audio_file.h"
#include "runtime/audio/log_mel.h"
#include "runtime/eval/english_normalizer.h"
#include "runtime/eval/speech_error.h"
#include "runtime/eval/speech_folder.h"
#include "runtime/eval/word_error.h"

namespace varve::cli {
namespace {

using WerJson = nlohmann::ordered_json;

// One plan, and what came of it so far.
struct WerLane {
  std::string plan;  // as typed
  std::unique_ptr<SpeechRunner> runner;
  EditCounts words;
  EditCounts characters;
  SpeechErrors errors;
  double wall_s = 0;
};

class WerRun {
 public:
  WerRun(const EvalWerOptions& options, std::FILE* out) : options_(options), out_(out) {}

  Status Run() {
    VARVE_RETURN_IF_ERROR(Prepare());
    const InterruptScope interrupt;
    Progress progress("eval wer", static_cast<double>(spoken_.size()));
    Status status;
    for (const Utterance& file : spoken_) {
      if (InterruptScope::interrupted()) break;
      status = RunFile(file);
      if (!status.ok()) {
        status = Status(status.code(), fmt::format("{}: {}", file.path, status.message()));
        break;
      }
      progress.Update(++files_done_, file.id);
    }
    progress.Clear();
    if (files_done_ > 0) Print();
    Status written =
        options_.texts.empty() || texts_.empty() ? Status() : WriteText(options_.texts, texts_);
    return FinishJson(status.ok() ? std::move(written) : status, options_.json, "eval wer", Rows());
  }

 private:
  Status Prepare() {
    std::vector<Plan> plans;
    for (const std::string& text : options_.plans) {
      VARVE_ASSIGN_OR_RETURN(plans.emplace_back(), ReadKvOption(text));
    }
    VARVE_RETURN_IF_ERROR(CheckWritable("--json", options_.json));
    VARVE_RETURN_IF_ERROR(CheckWritable("--texts", options_.texts));
    for (const std::string& folder : options_.folders) {
      VARVE_ASSIGN_OR_RETURN(SpeechFolder found, ReadSpeechFolder(folder));
      std::ranges::move(found.utterances, std::back_inserter(spoken_));
    }
    if (spoken_.empty()) return NotFound("no recording has a transcript in the folders given");
    if (options_.files > 0 && spoken_.size() > static_cast<size_t>(options_.files)) {
      spoken_.resize(static_cast<size_t>(options_.files));
    }
    VARVE_ASSIGN_OR_RETURN(model_, WhisperModel::Load(options_.speech.model));
    executor_ = MakeThreadPool(options_.speech.threads);
    SpeechOptions speech;
    speech.precision = PrecisionFor(options_.speech);
    speech.encoded = std::make_shared<EncodedWindows>(4);
    for (size_t i = 0; i < plans.size(); ++i) {
      speech.plan = plans[i];
      WerLane& lane = lanes_.emplace_back();
      lane.plan = options_.plans[i];
      VARVE_ASSIGN_OR_RETURN(lane.runner, SpeechRunner::Create(model_, *executor_, speech));
    }
    if (!options_.errors) return Status();
    VARVE_ASSIGN_OR_RETURN(speech.plan, ParsePlan("f32"));
    VARVE_ASSIGN_OR_RETURN(exact_, SpeechRunner::Create(model_, *executor_, speech));
    return Status();
  }

  Status RunFile(const Utterance& file) {
    VARVE_ASSIGN_OR_RETURN(const std::span<const float> samples, reader_.Read(file));
    const Timer timer;
    const LogMel mel = ComputeLogMel(samples, model_->config().mels, *executor_);
    const double mel_s = timer.seconds();
    const std::string said = NormalizeEnglish(file.text);
    for (WerLane& lane : lanes_) {
      const Timer since;
      VARVE_ASSIGN_OR_RETURN(const Transcript transcript,
                             Transcribe(*lane.runner, mel, DecodingFor(options_.speech)));
      lane.wall_s += since.seconds() + mel_s;
      std::string text;
      for (const TranscriptSegment& segment : transcript.segments) text += segment.text;
      const std::string heard = NormalizeEnglish(text);
      lane.words += AlignWords(said, heard);
      lane.characters += AlignCharacters(said, heard);
      if (!options_.texts.empty())
        texts_ += fmt::format("{}\t{}\t{}\t{}\n", lane.plan, file.id, said, heard);
      if (exact_ != nullptr) VARVE_RETURN_IF_ERROR(MeasureErrors(mel, transcript, &lane));
    }
    seconds_ += static_cast<double>(samples.size()) / kSpeechRate;
    return Status();
  }

  // On the first window, with the text that was found for it.
  Status MeasureErrors(const LogMel& mel, const Transcript& transcript, WerLane* lane) {
    if (mel.frames == 0) return Status();
    std::vector<int32_t> tokens = {model_->vocabulary().start()};
    const auto most = static_cast<size_t>(model_->config().text_ctx / 2);
    for (const TranscriptSegment& segment : transcript.segments) {
      for (const int32_t id : segment.tokens) {
        if (tokens.size() < most) tokens.push_back(id);
      }
    }
    return MeasureSpeechErrors(*exact_, *lane->runner, mel.values.data(), mel.stride(), tokens,
                               &lane->errors);
  }

  double UsPerToken(const SpeechStats& stats) const {
    return stats.decode_us / static_cast<double>(std::max<uint64_t>(1, stats.steps));
  }
  // As if the plan had been alone: with the time of windows that another one had encoded.
  double RealTimeFactor(const WerLane& lane) const {
    const double shared_s = lane.runner->stats().shared_us / 1e6;
    return seconds_ > 0 ? (lane.wall_s + shared_s) / seconds_ : 0;
  }

  WerJson Rows() const {
    WerJson rows = WerJson::array();
    for (const WerLane& lane : lanes_) {
      const SpeechStats& stats = lane.runner->stats();
      WerJson row = {
          {"plan", lane.plan},
          {"wer", lane.words.rate()},
          {"words", lane.words.reference_length()},
          {"substitutions", lane.words.substitutions},
          {"deletions", lane.words.deletions},
          {"insertions", lane.words.insertions},
          {"cer", lane.characters.rate()},
          {"characters", lane.characters.reference_length()},
          {"files", files_done_},
          {"seconds", seconds_},
          {"self_bytes", stats.self_bytes},
          {"cross_bytes", stats.cross_bytes},
          {"us_per_token", UsPerToken(stats)},
          {"real_time_factor", RealTimeFactor(lane)},
          {"beam", options_.speech.beam},
      };
      if (exact_ != nullptr) {
        row["k_max_error"] = lane.errors.k.max;
        row["k_rms_error"] = lane.errors.k.rms();
        row["v_max_error"] = lane.errors.v.max;
        row["v_rms_error"] = lane.errors.v.rms();
        row["attention_max_error"] = lane.errors.attention.max;
        row["attention_rms_error"] = lane.errors.attention.rms();
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  void Print() const {
    TextTable table({"plan", ">WER", ">errors", ">sub", ">del", ">ins", ">CER", ">attention rms",
                     ">self", ">cross", ">us/token", ">RTF"});
    for (const WerLane& lane : lanes_) {
      const SpeechStats& stats = lane.runner->stats();
      table.AddRow({lane.plan, fmt::format("{:.2f} %", 100 * lane.words.rate()),
                    std::to_string(lane.words.errors()), std::to_string(lane.words.substitutions),
                    std::to_string(lane.words.deletions), std::to_string(lane.words.insertions),
                    fmt::format("{:.2f} %", 100 * lane.characters.rate()),
                    exact_ != nullptr ? fmt::format("{:.2e}", lane.errors.attention.rms()) : "-",
                    HumanBytes(static_cast<double>(stats.self_bytes)),
                    HumanBytes(static_cast<double>(stats.cross_bytes)),
                    fmt::format("{:.0f}", UsPerToken(stats)),
                    fmt::format("{:.3f}", RealTimeFactor(lane))});
    }
    table.Print(out_);
    fmt::print(
        out_,
        "{} utterances, {:.1f} s, {} words after Whisper's English normalizer. Bytes are those of "
        "pages at their highest;\nus/token is a step of all beams; RTF is time over sound, "
        "reading files excluded.\n",
        files_done_, seconds_, lanes_.front().words.reference_length());
  }

  const EvalWerOptions& options_;
  std::FILE* out_;
  std::vector<Utterance> spoken_;
  UtteranceReader reader_;
  std::shared_ptr<const WhisperModel> model_;
  std::unique_ptr<Executor> executor_;
  std::vector<WerLane> lanes_;
  std::unique_ptr<SpeechRunner> exact_;
  std::string texts_;  // of all files so far
  int files_done_ = 0;
  double seconds_ = 0;
};

}  // namespace

Status EvalWer(const EvalWerOptions& options) {
  return WerRun(options, options.json == "-" ? stderr : stdout).Run();
}

}  // namespace varve::cli

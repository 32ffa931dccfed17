#include "cli/transcribe/transcribe_files.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/timer.h"
#include "cli/interrupt.h"
#include "cli/report/output.h"
#include "cli/report/progress.h"
#include "cli/transcribe/admission.h"
#include "cli/transcribe/ordered_output.h"
#include "runtime/audio/audio_file.h"
#include "runtime/audio/log_mel.h"
#include "runtime/slab_reserve.h"
#include "runtime/whisper/speech_runner.h"
#include "runtime/whisper/transcript_format.h"

namespace varve::cli {
namespace {

namespace fs = std::filesystem;

std::string SpeechFileName(const std::string& file) { return file == "-" ? "stdin" : file; }

// Where the text of a sound goes: --output itself, or a file in that folder.
std::string OutputPath(const TranscribeFilesOptions& options, size_t index) {
  if (options.files.size() == 1) return options.output;
  const std::string stem = fs::path(SpeechFileName(options.files[index])).stem().string();
  return (fs::path(options.output) / (stem + "." + options.format)).string();
}

// The transcription of all files: workers, each with threads and caches of its own, over one pool.
class FilesRun {
 public:
  FilesRun(const TranscribeFilesOptions& options, TranscriptFormat format, Plan plan,
           std::shared_ptr<const WhisperModel> model)
      : options_(options),
        format_(format),
        plan_(std::move(plan)),
        model_(std::move(model)),
        admission_(options.max_memory),
        output_(options.files.size(), [this](std::string_view text) { Write(text); }),
        progress_("transcribe", static_cast<double>(options.files.size())),
        parts_(options.files.size()) {}

  Status Run() {
    const auto workers =
        std::min<size_t>(static_cast<size_t>(options_.together), options_.files.size());
    const int threads = options_.speech.threads > 0
                            ? options_.speech.threads
                            : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    const int each = std::max(1, threads / static_cast<int>(workers));
    std::vector<std::thread> others;
    for (size_t i = 1; i < workers; ++i) others.emplace_back([this, each] { Work(each); });
    Work(each);
    for (std::thread& other : others) other.join();
    progress_.Clear();
    return first_error_;
  }

 private:
  void Work(int threads) {
    const std::unique_ptr<Executor> executor = MakeThreadPool(threads);
    SpeechOptions speech;
    speech.plan = plan_;
    speech.precision = PrecisionFor(options_.speech);
    speech.pool = pool_;
    Result<std::unique_ptr<SpeechRunner>> runner = SpeechRunner::Create(model_, *executor, speech);
    if (!runner.ok()) return Fail(runner.status());
    while (!InterruptScope::interrupted()) {
      const size_t index = next_.fetch_add(1);
      if (index >= options_.files.size()) return;
      const Status done = RunFile(**runner, index);
      if (!done.ok()) Fail(done);
      output_.Done(index);
    }
  }

  Status RunFile(SpeechRunner& runner, size_t index) {
    const Timer timer;
    VARVE_ASSIGN_OR_RETURN(const std::vector<float> samples, ReadSpeech(options_.files[index]));
    const double seconds = static_cast<double>(samples.size()) / kSpeechRate;
    VARVE_ASSIGN_OR_RETURN(
        const uint64_t bytes,
        EstimateSpeechBytes(model_->config(), plan_, options_.speech.beam, seconds,
                            static_cast<int>(options_.speech.prompt.size())));
    VARVE_RETURN_IF_ERROR(admission_.Enter(SpeechFileName(options_.files[index]), bytes));
    const Status status = RunSound(runner, index, samples);
    admission_.Leave(bytes);
    if (!status.ok()) {
      return Status(status.code(),
                    fmt::format("{}: {}", SpeechFileName(options_.files[index]), status.message()));
    }
    if (options_.stats) Report(runner, index, seconds, timer.seconds());
    return Status();
  }

  Status RunSound(SpeechRunner& runner, size_t index, const std::vector<float>& samples) {
    const LogMel mel = ComputeLogMel(samples, model_->config().mels, runner.executor());
    const double seconds = static_cast<double>(samples.size()) / kSpeechRate;
    std::string whole;  // of the output file
    const auto emit = [&](const std::string& text) {
      if (options_.output.empty()) {
        output_.Add(index, text);
      } else {
        whole += text;
      }
    };
    if (options_.output.empty() && options_.files.size() > 1) {
      output_.Add(index, fmt::format("== {} ==\n", SpeechFileName(options_.files[index])));
    }
    TranscriptWriter writer(format_);
    emit(writer.Begin());
    TranscribeOptions decoding = DecodingFor(options_.speech);
    decoding.words = format_ == TranscriptFormat::kJson;
    TranscribeCallbacks callbacks;
    callbacks.on_segment = [&](const TranscriptSegment& segment) { emit(writer.Add(segment)); };
    callbacks.on_progress = [&](double done) {
      ShowProgress(index, done / seconds);
      return !InterruptScope::interrupted();
    };
    VARVE_ASSIGN_OR_RETURN(const Transcript transcript,
                           Transcribe(runner, mel, decoding, callbacks));
    ShowProgress(index, 1);
    emit(writer.End(transcript));
    return options_.output.empty() ? Status() : WriteText(OutputPath(options_, index), whole);
  }

  void Write(std::string_view text) {
    if (text.empty()) return;
    const std::lock_guard lock(screen_);
    progress_.Clear();
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  void ShowProgress(size_t index, double part) {
    if (isatty(STDERR_FILENO) == 0) return;
    const std::lock_guard lock(screen_);
    parts_[index] = part;
    double sum = 0;
    for (const double done : parts_) sum += done;
    progress_.Update(sum, SpeechFileName(options_.files[index]));
  }

  void Report(const SpeechRunner& runner, size_t index, double seconds, double took) {
    const SpeechStats& stats = runner.stats();
    const std::lock_guard lock(screen_);
    progress_.Clear();
    WriteNote(fmt::format(
        "{}: {:.1f} s of sound in {:.2f} s; so far {} windows encoded in {:.2f} s, {} tokens in {} "
        "steps in {:.2f} s; self {}, cross {} at most\n",
        SpeechFileName(options_.files[index]), seconds, took, stats.windows_encoded,
        stats.encode_us / 1e6, stats.tokens, stats.steps, stats.decode_us / 1e6,
        HumanBytes(static_cast<double>(stats.self_bytes)),
        HumanBytes(static_cast<double>(stats.cross_bytes))));
  }

  void Fail(const Status& status) {
    const std::lock_guard lock(screen_);
    progress_.Clear();
    if (first_error_.ok()) {
      first_error_ = status;  // the caller reports it
    } else {
      WriteNote(fmt::format("varve: {}\n", status.message()));
    }
  }

  const TranscribeFilesOptions& options_;
  const TranscriptFormat format_;
  const Plan plan_;
  const std::shared_ptr<const WhisperModel> model_;
  const std::shared_ptr<PagePool> pool_ = MakeReservingPool(kSpeechReserveBytes);
  Admission admission_;
  OrderedOutput output_;
  std::mutex screen_;  // guards what follows
  Progress progress_;
  std::vector<double> parts_;  // of each file that is done
  Status first_error_;
  std::atomic<size_t> next_ = 0;
};

// No text may take the place of another, or of a sound.
Status CheckOutputs(const TranscribeFilesOptions& options) {
  std::map<std::string, size_t> writers;
  for (size_t i = 0; i < options.files.size(); ++i) {
    const std::string path = OutputPath(options, i);
    const auto [writer, is_new] = writers.emplace(path, i);
    if (!is_new) {
      return InvalidArgument(fmt::format(
          "--output: the texts of \"{}\" and \"{}\" would both be \"{}\"; give them different "
          "names, or transcribe them apart",
          SpeechFileName(options.files[writer->second]), SpeechFileName(options.files[i]), path));
    }
    for (const std::string& sound : options.files) {
      std::error_code error;  // a file that is not there is no other file
      if (!fs::equivalent(path, sound, error)) continue;
      return InvalidArgument(
          fmt::format("--output: \"{}\" is the sound \"{}\" itself", path, sound));
    }
  }
  return Status();
}

Status PrepareOutput(const TranscribeFilesOptions& options) {
  if (options.output.empty()) return Status();
  VARVE_RETURN_IF_ERROR(CheckOutputs(options));
  if (options.files.size() == 1) return CheckWritable("--output", options.output);
  std::error_code error;
  fs::create_directories(options.output, error);
  if (!error) return Status();
  return IoError(
      fmt::format("--output \"{}\": cannot be made: {}", options.output, error.message()));
}

}  // namespace

Result<Plan> SpeechPlanFor(const TranscribeFilesOptions& options) {
  if (!options.plan.empty()) return ReadKvOption(options.plan);
  std::string text;
  if (!options.type_k.empty()) text = "k=" + options.type_k;
  if (!options.type_v.empty()) text += (text.empty() ? "v=" : ",v=") + options.type_v;
  return ReadKvOption(text.empty() ? "f16" : text);
}

Status TranscribeFiles(const TranscribeFilesOptions& options) {
  VARVE_ASSIGN_OR_RETURN(Plan plan, SpeechPlanFor(options));
  VARVE_ASSIGN_OR_RETURN(const TranscriptFormat format, ParseTranscriptFormat(options.format));
  VARVE_RETURN_IF_ERROR(PrepareOutput(options));
  VARVE_ASSIGN_OR_RETURN(auto model, WhisperModel::Load(options.speech.model));
  const InterruptScope interrupt;
  return FilesRun(options, format, std::move(plan), std::move(model)).Run();
}

}  // namespace varve::cli

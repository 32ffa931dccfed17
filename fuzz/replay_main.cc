// The main() of the fuzz-replay programs: runs a fuzzer's entry point over every file of a corpus,
// so that the corpora are part of the ordinary test run with any compiler. It looks for nothing
// new; that is libFuzzer's job (preset `fuzz`).
//
//   fuzz_replay_plan fuzz/corpus/plan [FILE_OR_FOLDER...]
//
// Inputs run in the order of their paths. No input at all is a failure: a replay that has lost its
// corpus must not pass.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

// Adds `path`, or every regular file below it.
bool CollectInputs(const fs::path& path, std::vector<fs::path>* inputs) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    inputs->push_back(path);
    return true;
  }
  fs::recursive_directory_iterator it(path, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it->is_regular_file(error)) inputs->push_back(it->path());
  }
  if (error) std::fprintf(stderr, "%s: %s\n", path.c_str(), error.message().c_str());
  return !error;
}

bool Replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    return false;
  }
  // Named before it runs: an input that crashes is the last line of the log.
  std::printf("%s (%zu bytes)\n", path.filename().c_str(), bytes.size());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> inputs;
  for (int i = 1; i < argc; ++i) {
    if (!CollectInputs(argv[i], &inputs)) return 1;
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "usage: %s CORPUS...: no inputs to replay\n", argv[0]);
    return 1;
  }
  std::sort(inputs.begin(), inputs.end());
  for (const fs::path& path : inputs) {
    if (!Replay(path)) return 1;
  }
  std::printf("replayed %zu inputs\n", inputs.size());
  return 0;
}

// Failing allocations inside every kind of call of the C ABI, as a program of its own: it replaces
// operator new, so that the n-th allocation of a call fails, on whichever thread it happens.
//
//   allocation_faults [FAILURES] [SEED] [FOLDER]
//
// Promises that are checked after every call: the process lives; a call that reports an error has
// changed nothing, one that reports success has done all; what lives in the cache has the values
// that were appended; a file that was saved loads, one that could not be saved leaves the old one,
// no temporary file and no descriptor; when sequences are gone, so are their pages; when caches are
// gone, so is their memory. Prints a table; the exit code is 1 if a promise was broken.

#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "varve/varve.h"

namespace {

std::atomic<int64_t> allocations_left = -1;  // until one fails; negative: none does
std::atomic<int64_t> num_failed = 0;
std::atomic<int64_t> num_live = 0;
std::atomic<int64_t> num_made = 0;

void* Allocate(size_t bytes, size_t alignment) {
  num_made.fetch_add(1, std::memory_order_relaxed);
  if (allocations_left.load(std::memory_order_relaxed) >= 0 && allocations_left.fetch_sub(1) == 0) {
    ++num_failed;
    return nullptr;
  }
  void* memory = alignment <= 16
                     ? std::malloc(bytes)
                     : aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory != nullptr) ++num_live;
  return memory;
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void Release(void* memory) {
  if (memory == nullptr) return;
  --num_live;
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return OrThrow(Allocate(bytes, 16)); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes, 16); }
void* operator new(size_t bytes, std::align_val_t to) {
  return OrThrow(Allocate(bytes, static_cast<size_t>(to)));
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete(void* memory, size_t) noexcept { Release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Release(memory); }

namespace {

// The program's own allocations do not fail.
class OwnWork {
 public:
  OwnWork() : left_(allocations_left.exchange(-1)) {}
  ~OwnWork() { allocations_left = left_; }
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;

 private:
  int64_t left_;
};

constexpr int kLayers = 2;
constexpr int kHeads = 2;
constexpr int kDim = 32;

int num_broken = 0;

void Promise(bool holds, const std::string& what) {
  if (holds) return;
  ++num_broken;
  if (num_broken <= 20) std::fprintf(stderr, "broken: %s\n", what.c_str());
}

// A sequence of numbers that the seed fixes.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return state_ >> 33;
  }
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(limit));
  }

 private:
  uint64_t state_;
};

// The value that the row of a position was appended with: rows of sequences that share their
// beginning are the same.
float ValueAt(int64_t position, int layer, int head, int part, int i) {
  const auto mixed = static_cast<double>(position * 37 + layer * 11 + head * 5 + part * 3 + i);
  return static_cast<float>(std::sin(mixed * 0.7));
}

// Entries of a folder whose names begin so.
int64_t CountEntries(const std::string& folder, const std::string& prefix) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    count += entry.path().filename().string().starts_with(prefix) ? 1 : 0;
  return count;
}

int64_t OpenDescriptors() { return CountEntries("/proc/self/fd", ""); }

struct PlanCase {
  const char* plan;
  float tolerance;  // of a value that was stored
};

constexpr PlanCase kPlans[] = {
    {"f16,page=16", 1e-3f},
    {"q8_0,page=16", 2e-2f},
    {"q4_0r,page=16,exact=0", 0.5f},
    {"t4,page=16,exact=0", 0.6f},
    {"age=f16:32/q8_0:64/t3,page=16,exact=0", 0.9f},
    {"f16,page=16,window=96,sink=16", 1e-3f},
    {"evict=h2o,page=16,ratio=2,sink=16,recent=32,trigger=64", 1e-3f},
    {"evict=demote,page=16,ratio=3,sink=16,recent=32,trigger=64", 1.0f},
    {"f16,page=16,pack=store,hot=16/32,bootstrap=16,step=32,pack_threads=2", 1e-3f},
    {"f16,page=16,pack=full,hot=16/32,bootstrap=16,step=32,pack_threads=1", 1e-3f},
    {"f16,page=16,pack=store,hot=16/32,bootstrap=16,step=16,pack_threads=1,decode_cache=8", 1e-3f},
    {"f16,page=16,pack=store,hot=16/32,bootstrap=16,step=16,pack_threads=1,layer_cache=2", 1e-3f},
    {"evict=snapkv,page=16,ratio=2,sink=16,recent=32,trigger=64", 1e-3f},
};

class Driver {
 public:
  Driver(const PlanCase& plan, uint64_t seed, const std::string& folder)
      : plan_(plan),
        dice_(seed),
        folder_(folder),
        name_("faults." + std::to_string(getpid()) + ".varve"),
        file_(folder + "/" + name_) {
    shape_ = {sizeof(varve_shape), kLayers, kHeads, 1, kDim, kDim, 0};
    // In a pool of its own a cache counts the slots that it uses, and no warm ones beside them.
    Must(varve_page_pool_create(0, &pool_), "varve_page_pool_create");
    varve_cache_options options = {};
    options.struct_size = sizeof(options);
    options.pool = pool_;
    Must(varve_cache_create(&shape_, plan.plan, &options, &cache_), "varve_cache_create");
    AddSequence();
  }
  ~Driver() {
    varve_cache_destroy(cache_);
    varve_page_pool_free(pool_);
    std::remove(file_.c_str());
  }

  void Run(int64_t failures, std::map<std::string, int64_t>* table);

 private:
  using Call = std::function<varve_status()>;

  void Must(varve_status status, const char* call) {
    Promise(status == VARVE_OK, std::string(plan_.plan) + ": " + call + ": " + varve_last_error());
  }
  // Makes the call with one failing allocation, wherever in it. True: it has done its work, perhaps
  // the second time, without a failure.
  void WithFailure(const char* name, const Call& call, const std::function<void()>& undo = {});
  void AddSequence();
  uint64_t AnySequence() {
    auto at = next_.begin();
    std::advance(at, dice_.Below(static_cast<int64_t>(next_.size())));
    return at->first;
  }
  varve_status Step(uint64_t sequence, int tokens);
  void CheckContent(const char* call);
  void CheckFile();
  // Frees all sequences: no byte of their pages is left.
  void CheckEnd();
  // One call each, of those that One() chooses from; no call where the cache is not ready for it.
  void Fork(uint64_t sequence);
  void Free(uint64_t sequence);
  void Truncate(uint64_t sequence);
  void Prompt(uint64_t sequence);
  void AskForText(const char* name, const std::function<varve_status(char**)>& ask);
  void CreateAnother();
  void Save();
  void Load();
  void StepForward(uint64_t sequence);
  void One();

  PlanCase plan_;
  Dice dice_;
  std::string folder_;
  std::string name_;
  std::string file_;  // of that name in the folder
  varve_shape shape_;
  varve_page_pool* pool_ = nullptr;
  varve_cache* cache_ = nullptr;
  std::map<uint64_t, int64_t> next_;         // position that each sequence must have
  std::vector<int64_t> saved_;               // the same of the file's
  std::map<std::string, int64_t> made_;      // allocations of a call, the last time it went well
  std::map<std::string, int64_t> failures_;  // by call
};

void Driver::WithFailure(const char* name, const Call& call, const std::function<void()>& undo) {
  const int64_t before = num_failed;
  const int64_t most = std::max<int64_t>(made_[name], 1);
  allocations_left = dice_.Below(most + most / 4 + 1);
  varve_status status = call();
  varve_wait_for_packing(cache_);  // a failure of a worker belongs to this call, too
  allocations_left = -1;
  const bool failed = num_failed > before;
  if (failed) ++failures_[name];
  if (status == VARVE_OK) {
    if (!failed) return;
  } else {
    Promise(failed, std::string(plan_.plan) + ": " + name +
                        " fails without a cause: " + varve_last_error());
    Promise(status == VARVE_OUT_OF_MEMORY, std::string(plan_.plan) + ": " + name + " reports " +
                                               varve_status_name(status) + ": " +
                                               varve_last_error());
    if (undo) undo();
    CheckContent(name);
    const int64_t made = num_made;
    Must(call(), name);
    made_[name] = num_made - made;
  }
  CheckContent(name);
}

void Driver::AddSequence() {
  WithFailure("varve_sequence_create", [&] {
    uint64_t sequence = 0;
    const varve_status status = varve_sequence_create(cache_, &sequence);
    const OwnWork own;
    if (status == VARVE_OK) next_[sequence] = 0;
    return status;
  });
}

varve_status Driver::Step(uint64_t sequence, int tokens) {
  int64_t first = 0;
  varve_status status = varve_sequence_next_position(cache_, sequence, &first);
  if (status != VARVE_OK) return status;
  const varve_step_entry entry = {sequence, tokens};
  status = varve_step_begin(cache_, &entry, 1);
  static float keys[64 * kHeads * kDim], values[64 * kHeads * kDim], out[64 * kHeads * kDim];
  for (int layer = 0; layer < kLayers && status == VARVE_OK; ++layer) {
    for (int at = 0; at < tokens * kHeads * kDim; ++at) {
      const int64_t position = first + at / (kHeads * kDim);
      keys[at] = ValueAt(position, layer, at / kDim % kHeads, 0, at % kDim);
      values[at] = ValueAt(position, layer, at / kDim % kHeads, 1, at % kDim);
    }
    const varve_rows k = {keys, tokens, 0, 0};
    const varve_rows v = {values, tokens, 0, 0};
    status = varve_step_append(cache_, layer, sequence, &k, &v);
    if (status != VARVE_OK) break;
    const varve_attend_request request = {sequence, tokens, keys, 0, 0, out, 0, 0, nullptr};
    status = varve_attend(cache_, layer, &request, 1, nullptr);
  }
  return status == VARVE_OK ? varve_step_end(cache_) : status;
}

void Driver::CheckContent(const char* call) {
  static std::vector<float> rows(4096 * kDim);
  double sequences = -1;
  Must(varve_property_number(cache_, "sequences", &sequences), "varve_property_number");
  Promise(
      sequences == static_cast<double>(next_.size()),
      std::string(plan_.plan) + ": " + call + " left another number of sequences than it reports");
  for (const auto& [sequence, expected] : next_) {
    int64_t position = -1;
    Must(varve_sequence_next_position(cache_, sequence, &position), "varve_sequence_next_position");
    Promise(position == expected,
            std::string(plan_.plan) + ": a sequence is at another position than it was told");
    const int layer = static_cast<int>(dice_.Below(kLayers));
    const int head = static_cast<int>(dice_.Below(kHeads));
    const int part = static_cast<int>(dice_.Below(2));
    // One live row after the other: which positions have one only the cache knows.
    for (int64_t begin = 0; begin < position; begin += 7) {
      int64_t count = 0;
      Must(varve_read_rows(cache_, sequence, layer, head, part, begin, begin + 1, rows.data(),
                           rows.size(), &count),
           "varve_read_rows");
      for (int i = 0; i < count * kDim; ++i) {
        const float wanted = ValueAt(begin, layer, head, part, i);
        Promise(std::abs(rows[i] - wanted) <= plan_.tolerance,
                std::string(plan_.plan) + ": a row has other values than were appended");
      }
    }
  }
}

// The file, if there was ever one saved, loads into another cache.
void Driver::CheckFile() {
  if (saved_.empty()) return;
  varve_cache* other = nullptr;
  Must(varve_cache_create(&shape_, plan_.plan, nullptr, &other), "varve_cache_create");
  varve_loaded* loaded = nullptr;
  Must(varve_cache_load(other, file_.c_str(), 0, &loaded), "varve_cache_load");
  if (loaded != nullptr) {
    Promise(loaded->num_sequences == saved_.size(), "a file has other sequences than were saved");
    for (size_t i = 0; i < loaded->num_sequences && i < saved_.size(); ++i) {
      int64_t position = -1;
      Must(varve_sequence_next_position(other, loaded->sequences[i].sequence, &position),
           "varve_sequence_next_position");
      Promise(position == saved_[i],
              std::string(plan_.plan) + ": a file has a sequence at another position");
    }
  }
  varve_loaded_free(loaded);
  varve_cache_destroy(other);
}

void Driver::Fork(uint64_t sequence) {
  if (next_.size() > 3) return;
  WithFailure("varve_sequence_fork", [&] {
    uint64_t fork = 0;
    const varve_status status = varve_sequence_fork(cache_, sequence, &fork);
    const OwnWork own;
    if (status == VARVE_OK) next_[fork] = next_[sequence];
    return status;
  });
}

void Driver::Free(uint64_t sequence) {
  if (next_.size() < 2) return;
  WithFailure("varve_sequence_free", [&] {
    const varve_status status = varve_sequence_free(cache_, sequence);
    if (status == VARVE_OK) next_.erase(sequence);
    return status;
  });
}

void Driver::Truncate(uint64_t sequence) {
  const int64_t kept = next_[sequence] - dice_.Below(std::min<int64_t>(next_[sequence] + 1, 20));
  WithFailure("varve_sequence_truncate", [&] {
    const varve_status status = varve_sequence_truncate(cache_, sequence, kept);
    if (status == VARVE_OK) next_[sequence] = kept;
    return status;
  });
}

void Driver::Prompt(uint64_t sequence) {
  WithFailure("varve_sequence_begin_prompt",
              [&] { return varve_sequence_begin_prompt(cache_, sequence); });
  WithFailure("varve_sequence_end_prompt",
              [&] { return varve_sequence_end_prompt(cache_, sequence); });
}

void Driver::AskForText(const char* name, const std::function<varve_status(char**)>& ask) {
  char* text = nullptr;
  WithFailure(name, [&] { return ask(&text); });
  varve_free(text);
}

void Driver::CreateAnother() {
  varve_cache* other = nullptr;
  WithFailure("varve_cache_create",
              [&] { return varve_cache_create(&shape_, plan_.plan, nullptr, &other); });
  varve_cache_destroy(other);
}

void Driver::Save() {
  std::vector<int64_t> positions;
  for (const auto& [sequence, position] : next_) positions.push_back(position);
  const int64_t descriptors = OpenDescriptors();
  const auto check = [&] {
    CheckFile();
    Promise(CountEntries(folder_, name_ + ".tmp-") == 0,
            std::string(plan_.plan) + ": varve_cache_save leaves a temporary file");
    Promise(OpenDescriptors() == descriptors,
            std::string(plan_.plan) + ": varve_cache_save leaves a descriptor");
  };
  WithFailure(
      "varve_cache_save", [&] { return varve_cache_save(cache_, file_.c_str(), nullptr); },
      check);  // the old one is still there
  saved_ = positions;
  check();
}

void Driver::Load() {
  if (saved_.empty() || next_.size() > 3) return;
  WithFailure("varve_cache_load", [&] {
    varve_loaded* loaded = nullptr;
    const varve_status status = varve_cache_load(cache_, file_.c_str(), 0, &loaded);
    const OwnWork own;
    for (size_t i = 0; loaded != nullptr && i < loaded->num_sequences; ++i) {
      next_[loaded->sequences[i].sequence] = saved_[i];
    }
    varve_loaded_free(loaded);
    return status;
  });
}

void Driver::StepForward(uint64_t sequence) {
  if (next_[sequence] > 400) {
    Must(varve_sequence_truncate(cache_, sequence, 0), "varve_sequence_truncate");
    next_[sequence] = 0;
  }
  int32_t most = 1;
  Must(varve_sequence_max_step_tokens(cache_, sequence, &most), "varve_sequence_max_step_tokens");
  const int tokens = static_cast<int>(1 + dice_.Below(std::min<int64_t>(most, 40)));
  const auto call = [&] {
    const varve_status status = Step(sequence, tokens);
    if (status == VARVE_OK) next_[sequence] += tokens;
    return status;
  };
  WithFailure("a step", call, [&] { varve_step_abort(cache_); });
}

void Driver::CheckEnd() {
  for (const auto& [sequence, position] : next_)
    Must(varve_sequence_free(cache_, sequence), "varve_sequence_free");
  next_.clear();
  varve_wait_for_packing(cache_);
  const auto number = [this](const char* name) {
    double value = -1;
    Must(varve_property_number(cache_, name, &value), "varve_property_number");
    return value;
  };
  // Packing keeps its dictionaries for pages to come.
  for (const auto& [name, left] : {std::pair("pages", 0.0),
                                   {"bytes_held", number("lossless_dictionary_bytes")},
                                   {"lossless_decode_cache_bytes", 0.0}}) {
    Promise(number(name) == left, std::string(plan_.plan) + ": " + name + " is " +
                                      std::to_string(number(name)) +
                                      " when all sequences are gone");
  }
}

void Driver::One() {
  const uint64_t sequence = AnySequence();
  switch (dice_.Below(13)) {
    case 0:
      return Fork(sequence);
    case 1:
      return Free(sequence);
    case 2:
      return Truncate(sequence);
    case 3:
      return AskForText("varve_stats_json",
                        [&](char** json) { return varve_stats_json(cache_, json); });
    case 4:
      return AskForText("varve_properties_json",
                        [&](char** json) { return varve_properties_json(cache_, json); });
    case 5:
      return AskForText("varve_plan_canonical", [](char** text) {
        return varve_plan_canonical(
            R"({"rules": [{"layers": "0-1", "kv": "q8_0"}, {"layers": "2-", "k": "t4"}]})", text);
      });
    case 6:
      return CreateAnother();
    case 7:
      return Save();
    case 8:
      return Load();
    case 9:
      return Prompt(sequence);
    default:
      return StepForward(sequence);
  }
}

void Driver::Run(int64_t failures, std::map<std::string, int64_t>* table) {
  const int64_t end = num_failed + failures;
  while (num_failed < end && num_broken == 0) One();
  CheckEnd();
  for (const auto& [call, count] : failures_) (*table)[call] += count;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t failures = argc > 1 ? std::atoll(argv[1]) : 2000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const std::string folder = argc > 3 ? argv[3] : ".";
  const int64_t each = failures / static_cast<int64_t>(std::size(kPlans)) + 1;
  std::map<std::string, int64_t> table;
  for (const PlanCase& plan : kPlans) {
    // What threads and tables keep for good they have after a while; a leak grows every time.
    int64_t live = 0;
    int64_t least = INT64_MAX;
    const int64_t descriptors = OpenDescriptors();
    for (int pass = 0; pass < 4; ++pass) {
      { Driver(plan, seed, folder).Run(each / 4, &table); }
      if (pass > 0) least = std::min(least, num_live - live);
      live = num_live;
    }
    Promise(OpenDescriptors() == descriptors,
            std::string(plan.plan) + ": descriptors are left when caches are gone");
    Promise(least <= 0, std::string(plan.plan) + ": " + std::to_string(least) +
                            " allocations are left each time when a cache is gone");
  }
  std::printf("%-28s %10s\n", "call", "failures");
  for (const auto& [call, count] : table)
    std::printf("%-28s %10lld\n", call.c_str(), static_cast<long long>(count));
  std::printf("%lld failing allocations, %d promises broken\n",
              static_cast<long long>(num_failed.load()), num_broken);
  return num_broken == 0 ? 0 : 1;
}

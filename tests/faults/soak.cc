// A long run in which everything happens at once: pages are demoted by age and by a policy,
// dropped, packed by workers and spilled to a file, in one cache, step after step.
//
//   soak [STEPS] [FOLDER]
//
// Beside it runs a cache with the same plan but without packing and spilling. Promises: every
// output of attention is the same, bit for bit; pages of each kind have been made all along, as the
// statistics tell; the resident size after a tenth of the run does not grow any more. Prints a
// table; the exit code is 1 if a promise was broken.

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/machine.h"
#include "varve/cache.h"
#include "varve/step.h"

namespace {

using varve::Cache;
using varve::SequenceId;

constexpr int kLayers = 3;
constexpr int kHeads = 1;
constexpr int kDim = 32;
constexpr int kLook = 250;   // steps between looks at the statistics
constexpr int kTurn = 5000;  // steps between the turns of conversations

// What both caches do: layer 0 drops by attention and keeps exact pages, layer 1 demotes by
// attention and drops what its budget has no room for, layer 2 demotes by age and slides a window.
// Budgets are of bytes, so that the size can be flat however long the text is.
constexpr const char* kRules =
    "0: evict=h2o,budget=24KiB,sink=16,recent=48,trigger=128,page=16%s; "
    "1: evict=demote,budget=24KiB,sink=16,recent=48,trigger=128,exact=0%s; "
    "2: age=f16:64/q8_0,window=128,sink=16%s";
constexpr const char* kPacking = ",pack=store,hot=16/32,bootstrap=16,step=32";

std::string PlanText(const std::string& more, const std::string& once) {
  char text[1024];
  std::snprintf(text, sizeof text, kRules, (more + once).c_str(), more.c_str(), more.c_str());
  return text;
}

void Must(const varve::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "soak: %s: %s\n", what, status.ToString().c_str());
  std::exit(1);
}

std::unique_ptr<Cache> MakeCache(const std::string& plan) {
  varve::CacheOptions options;
  varve::Result<varve::Plan> parsed = varve::ParsePlan(plan);
  Must(parsed.status(), plan.c_str());
  options.plan = *parsed;
  options.num_threads = 1;
  varve::Result<std::unique_ptr<Cache>> cache =
      Cache::Create({kLayers, kHeads, 1, kDim, kDim, 0}, std::move(options));
  Must(cache.status(), plan.c_str());
  return std::move(*cache);
}

// Rows that are worth packing: few values, most of them those of the row before.
void MakeRow(uint64_t* state, std::vector<float>* row) {
  for (float& x : *row) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const auto dice = static_cast<uint32_t>(*state >> 40);
    if (dice % 16 == 0) x = static_cast<float>(dice / 16 % 5) * 0.5f - 1.0f;
  }
}

// A cache with two conversations that share their beginnings now and then.
struct Lane {
  explicit Lane(const std::string& plan) : cache(MakeCache(plan)) {
    for (SequenceId& id : sequences) id = *cache->CreateSequence();
  }
  // One token in each conversation, the same rows in both caches; outputs of all layers.
  void Run(const std::vector<float>& row, std::vector<float>* outputs) {
    const varve::StepEntry entries[] = {{sequences[0], 1}, {sequences[1], 1}};
    varve::Result<varve::Step> step = varve::Step::Begin(*cache, entries);
    Must(step.status(), "Begin");
    outputs->resize(size_t{2} * kLayers * kHeads * kDim);
    float* out = outputs->data();
    for (int layer = 0; layer < kLayers; ++layer) {
      for (const SequenceId id : sequences) {
        Must(step->Append(layer, id, {row.data() + layer, 1, 0, 0}, {row.data() + 2, 1, 0, 0}),
             "Append");
        const varve::AttendRequest request = {id, 1, row.data() + 3, 0, 0, out, 0, 0, nullptr};
        Must(step->Attend(layer, {&request, 1}), "Attend");
        out += kHeads * kDim;
      }
    }
    Must(step->Commit(), "Commit");
  }
  // The second conversation begins anew as a copy of the first; the first forgets its last tokens.
  void Turn() {
    Must(cache->Free(sequences[1]), "Free");
    varve::Result<SequenceId> copy = cache->Fork(sequences[0]);
    Must(copy.status(), "Fork");
    sequences[1] = *copy;
    const int64_t position = *cache->NextPosition(sequences[0]);
    Must(cache->Truncate(sequences[0], position - 7), "Truncate");
  }

  std::unique_ptr<Cache> cache;
  SequenceId sequences[2];
};

// What has happened so far.
struct Counts {
  uint64_t dropped, demoted, aged, packed;
  uint64_t spilled;  // looks at the cache that found pages in the spill file
};

Counts CountsOf(const Cache& cache, uint64_t spilled) {
  const varve::CacheReport report = cache.Report();
  return {report.retention.pages_evicted, report.retention.pages_demoted,
          report.pages_sealed + report.pages_demoted - report.retention.pages_demoted,
          report.lossless.pages_packed, spilled};
}

void PrintRow(int64_t steps, const Counts& now, uint64_t differing, uint64_t resident) {
  const auto number = [](uint64_t count) { return static_cast<unsigned long long>(count); };
  std::printf("%10lld %10llu %10llu %10llu %10llu %10llu %9llu %8.1f MiB\n",
              static_cast<long long>(steps), number(now.dropped), number(now.demoted),
              number(now.aged), number(now.packed), number(now.spilled), number(differing),
              static_cast<double>(resident) / (1 << 20));
  std::fflush(stdout);
}

bool Promise(bool holds, const char* what) {
  if (!holds) std::fprintf(stderr, "soak: broken: %s\n", what);
  return holds;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::atoll(argv[1]) : 20000;
  const std::string spill = (argc > 2 ? std::string(argv[2]) : std::string(".")) + "/soak.spill";
  Lane plain(PlanText("", ""));
  Lane packed(PlanText(kPacking, ",pack_threads=1,decode_cache=4,spill=" + spill));
  std::vector<float> row(kHeads * kDim + 4);
  std::vector<float> expected;
  std::vector<float> got;
  uint64_t state = 1;
  uint64_t differing = 0;
  uint64_t spilled = 0;
  uint64_t resident_early = 0;
  uint64_t resident_late = 0;
  Counts early{};
  std::printf("%10s %10s %10s %10s %10s %10s %9s %12s\n", "steps", "dropped", "demoted", "aged",
              "packed", "spilled", "differing", "resident");
  for (int64_t i = 1; i <= steps; ++i) {
    MakeRow(&state, &row);
    plain.Run(row, &expected);
    packed.Run(row, &got);
    differing += std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)) != 0 ? 1 : 0;
    if (i % kTurn == 0) {
      plain.Turn();
      packed.Turn();
    }
    if (i % kLook == 0 && packed.cache->Report().lossless.pages_spilled > 0) ++spilled;
    if (i % std::max<int64_t>(steps / 10, 1) != 0) continue;
    packed.cache->WaitForPacking();
    malloc_trim(0);
    const uint64_t resident = varve::ResidentBytes();
    const Counts now = CountsOf(*packed.cache, spilled);
    if (resident_early == 0) resident_early = resident, early = now;
    resident_late = std::max(resident_late, resident);
    PrintRow(i, now, differing, resident);
  }
  const Counts late = CountsOf(*packed.cache, spilled);
  bool holds = Promise(differing == 0, "outputs differ from those without packing");
  holds &= Promise(late.dropped > early.dropped, "no page was dropped after the first tenth");
  holds &= Promise(late.demoted > early.demoted, "none was demoted by the policy after that");
  holds &= Promise(late.aged > early.aged, "none was demoted by age after that");
  holds &= Promise(late.packed > early.packed, "none was packed after that");
  holds &= Promise(late.spilled > early.spilled, "none was in the spill file after that");
  holds &= Promise(packed.cache->Report().lossless.consistent(), "a packed page was damaged");
  holds &= Promise(resident_late <= resident_early + (uint64_t{2} << 20),
                   "the resident size has grown by more than 2 MiB since the first tenth");
  return holds ? 0 : 1;
}

// Works on a disk tier until it is killed: for disk_tier_kill_test.py.
//
//   disk_tier_load FOLDER MAX_BYTES SEED
//
// First every page that the tier says it has is read and compared with what it must be; "found N"
// counts them. Then pages go in and come out at random; "held N" says now and then how many are
// written. A page with wrong bytes, or files beyond the budget, end it with code 3.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serve/tiers/disk_backend.h"
#include "serve/tiers/page_tier_testing.h"
#include "serve/tiers/threaded_tier.h"

namespace {

using namespace varve::serve;  // NOLINT: a program of its own

constexpr uint64_t kNumPages = 3000;

size_t BytesOf(uint64_t page) { return 200 + Mix(page) % 6000; }

[[noreturn]] void Fail(const std::string& what) {
  std::printf("WRONG %s\n", what.c_str());
  std::exit(3);
}

bool IsRight(PageTier& tier, uint64_t page) {
  const PageKey key = KeyOf(page);
  const PageImage image = tier.Get({&key, 1}, Soon())[0];
  if (image == nullptr) return false;
  if (*image != *ImageOf(page, BytesOf(page))) Fail("page " + std::to_string(page));
  return true;
}

uint64_t FolderBytes(const std::string& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code gone;  // a segment may go meanwhile
    const uint64_t size = entry.file_size(gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string folder = argv[1];
  const uint64_t max_bytes = std::strtoull(argv[2], nullptr, 10);
  uint64_t random = std::strtoull(argv[3], nullptr, 10);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  DiskOptions options;
  options.folder = folder;
  options.max_bytes = max_bytes;
  auto disk = DiskBackend::Open(options);
  if (!disk.ok()) {
    std::printf("open: %s\n", disk.status().ToString().c_str());
    return 1;
  }
  ThreadedTier tier(std::move(*disk), 1 << 20);
  uint64_t found = 0;
  for (uint64_t page = 0; page < kNumPages; ++page) found += IsRight(tier, page) ? 1 : 0;
  std::printf("found %llu\n", static_cast<unsigned long long>(found));
  for (uint64_t i = 1;; ++i) {
    random = Mix(random + i);
    const uint64_t page = random % kNumPages;
    tier.Put(KeyOf(page), ImageOf(page, BytesOf(page)), static_cast<double>(Mix(page) % 7));
    IsRight(tier, Mix(random) % kNumPages);
    if (i % 64 != 0) continue;
    if (!tier.Flush(Soon())) Fail("flush");
    if (FolderBytes(folder) > max_bytes) Fail("budget");
    std::printf("held %llu\n", static_cast<unsigned long long>(tier.Stats().pages));
  }
}

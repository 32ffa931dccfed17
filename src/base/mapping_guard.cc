#include "base/mapping_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace varve {
namespace {

// What the handler sees. `flag` is written last and cleared first: without it the place is empty.
struct Place {
  std::atomic<bool> taken = false;
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;
  std::atomic<std::atomic<bool>*> flag = nullptr;
};
static_assert(std::atomic<uintptr_t>::is_always_lock_free);  // or a handler must not read it

std::array<Place, MappingGuard::kMaxGuards> places;
struct sigaction handler_before;

// Zeros in place of the page at `address`. True if the address belongs to a guard.
bool ReplacePage(uintptr_t address) {
  static const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (Place& place : places) {
    std::atomic<bool>* flag = place.flag.load(std::memory_order_acquire);
    if (flag == nullptr || address < place.begin || address >= place.end) continue;
    void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    const void* zeros =
        mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) return false;
    flag->store(true, std::memory_order_release);
    return true;
  }
  return false;
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool replaced = ReplacePage(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = error;
  if (replaced) return;
  if ((handler_before.sa_flags & SA_SIGINFO) != 0) {
    handler_before.sa_sigaction(signal, info, context);
  } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
    handler_before.sa_handler(signal);
  } else {
    sigaction(SIGBUS, &handler_before, nullptr);
    raise(signal);  // once more, as if there had been no handler
  }
}

void InstallHandler() {
  static const bool installed = [] {
    (void)ReplacePage(0);  // asks for the page size outside of a handler
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &handler_before) == 0;
  }();
  (void)installed;
}

}  // namespace

MappingGuard::MappingGuard(std::span<const std::byte> mapping) : place_(kMaxGuards) {
  InstallHandler();
  for (size_t i = 0; i < places.size() && place_ == kMaxGuards; ++i) {
    if (places[i].taken.exchange(true)) continue;
    places[i].begin = reinterpret_cast<uintptr_t>(mapping.data());
    places[i].end = reinterpret_cast<uintptr_t>(mapping.data() + mapping.size());
    places[i].flag.store(&damaged_, std::memory_order_release);
    place_ = i;
  }
}

MappingGuard::~MappingGuard() {
  if (place_ == kMaxGuards) return;
  places[place_].flag.store(nullptr, std::memory_order_release);
  places[place_].taken.store(false, std::memory_order_release);
}

}  // namespace varve

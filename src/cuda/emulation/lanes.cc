#include "cuda/emulation/lanes.h"

#include <setjmp.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/emulation/device_words.h"

namespace varve::cuda::emulation {
namespace {

constexpr size_t kStackBytes = 256 * 1024;

struct Warp {
  int alive = 0;
  int arrived = 0;
  uint64_t round = 0;
  uint64_t values[2][32] = {};  // of this round and the one before, which some lanes still read
};

// A context starts a fiber; from then on it is entered and left by jumps, which unlike contexts
// save no signal mask and so need no system call.
struct Fiber {
  ucontext_t context;
  jmp_buf jump;
  std::unique_ptr<char[]> stack;
  Place place;
  bool started = false;
  bool done = false;
};

// A barrier of some fibers of a block.
struct SomeBarrier {
  int arrived = 0;
  uint64_t round = 0;
};

// A copy that nobody has waited for.
struct Copy {
  const uint64_t* barrier;
  void* to;
  const void* from;
  size_t bytes;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  std::vector<std::max_align_t> shared;
  int alive = 0;
  int arrived = 0;
  uint64_t round = 0;
  SomeBarrier some[16];
  std::vector<Copy> copies;
  jmp_buf scheduler;
  size_t running = 0;
  void (*kernel)(const void*) = nullptr;
  const void* argument = nullptr;
};

Block* g_block = nullptr;

// From the running fiber to whoever resumed it, and back when it is resumed again.
__attribute__((noinline)) void Leave() {
  if (_setjmp(g_block->fibers[g_block->running].jump) == 0) _longjmp(g_block->scheduler, 1);
}

__attribute__((noinline)) void Resume() {
  if (_setjmp(g_block->scheduler) != 0) return;
  Fiber& fiber = g_block->fibers[g_block->running];
  if (fiber.started) _longjmp(fiber.jump, 1);
  fiber.started = true;
  setcontext(&fiber.context);
}

void Enter() {
  g_block->kernel(g_block->argument);
  Fiber& fiber = g_block->fibers[g_block->running];
  fiber.done = true;
  --g_block->alive;
  --g_block->warps[g_block->running / 32].alive;
  // Those that wait for all wait for one fewer now.
  if (g_block->alive > 0 && g_block->arrived == g_block->alive) {
    g_block->arrived = 0;
    ++g_block->round;
  }
  Leave();
}

void RunBlock(Block& block) {
  while (block.alive > 0) {
    for (block.running = 0; block.running < block.fibers.size(); ++block.running) {
      if (!block.fibers[block.running].done) Resume();
    }
  }
  if (block.copies.empty()) return;
  std::fprintf(stderr, "a block ends while %zu copies into its memory are under way\n",
               block.copies.size());
  std::abort();
}

}  // namespace

void Yield() { Leave(); }

const Place& Here() { return g_block->fibers[g_block->running].place; }

unsigned char* DynamicShared() { return reinterpret_cast<unsigned char*>(g_block->shared.data()); }

void SyncThreads() {
  const uint64_t round = g_block->round;
  if (++g_block->arrived == g_block->alive) {
    g_block->arrived = 0;
    ++g_block->round;
    return;
  }
  while (g_block->round == round) Yield();
}

void SyncSome(int id, int threads) {
  SomeBarrier& barrier = g_block->some[id];
  const uint64_t round = barrier.round;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    ++barrier.round;
    return;
  }
  while (barrier.round == round) Yield();
}

void CopyLater(const uint64_t* barrier, void* to, const void* from, size_t bytes) {
  std::memset(to, 0xFF, bytes);
  g_block->copies.push_back({barrier, to, from, bytes});
}

void FinishCopies(const uint64_t* barrier) {
  std::erase_if(g_block->copies, [&](const Copy& copy) {
    if (copy.barrier != barrier) return false;
    std::memcpy(copy.to, copy.from, copy.bytes);
    return true;
  });
}

uint64_t* Exchange(uint64_t mine) {
  Warp& warp = g_block->warps[g_block->running / 32];
  const uint64_t round = warp.round;
  warp.values[round % 2][g_block->running % 32] = mine;
  if (++warp.arrived == warp.alive) {
    warp.arrived = 0;
    ++warp.round;
  } else {
    while (warp.round == round) Yield();
  }
  return warp.values[round % 2];
}

void RunKernel(void (*kernel)(const void*), const void* argument, dim3 grid, dim3 block,
               size_t shared_bytes) {
  Block state;
  g_block = &state;
  state.kernel = kernel;
  state.argument = argument;
  state.fibers.resize(block.x);
  for (Fiber& fiber : state.fibers)
    fiber.stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        state.shared.assign(shared_bytes / sizeof(std::max_align_t) + 1, {});
        std::memset(state.shared.data(), 0xFF, shared_bytes);  // what was never written is NaN
        state.warps.assign((block.x + 31) / 32, {});
        for (unsigned i = 0; i < block.x; ++i) {
          Fiber& fiber = state.fibers[i];
          ++state.warps[i / 32].alive;
          fiber.place = {{i, 0, 0}, {x, y, z}, grid};
          fiber.done = false;
          fiber.started = false;
          getcontext(&fiber.context);
          fiber.context.uc_stack.ss_sp = fiber.stack.get();
          fiber.context.uc_stack.ss_size = kStackBytes;
          fiber.context.uc_link = nullptr;
          makecontext(&fiber.context, Enter, 0);
        }
        state.alive = static_cast<int>(block.x);
        state.arrived = 0;
        for (SomeBarrier& barrier : state.some) barrier = {};
        RunBlock(state);
      }
    }
  }
  g_block = nullptr;
}

}  // namespace varve::cuda::emulation

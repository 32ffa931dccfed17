#include "runtime/kernels/onednn.h"

#include <dlfcn.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <string>
#include <utility>

#include <dnnl.h>
#include <dnnl_version.h>
#include <fmt/format.h>

namespace varve {
namespace {

// The functions that are used, by oneDNN's names without their prefix.
// clang-format off
#define VARVE_ONEDNN_CALLS(CALL) \
  CALL(engine_create) \
  CALL(stream_create) \
  CALL(stream_wait) \
  CALL(stream_destroy) \
  CALL(memory_desc_init_by_tag) \
  CALL(memory_desc_get_size) \
  CALL(memory_create) \
  CALL(memory_destroy) \
  CALL(matmul_desc_init) \
  CALL(primitive_attr_create) \
  CALL(primitive_attr_set_scratchpad_mode) \
  CALL(primitive_attr_destroy) \
  CALL(primitive_desc_create) \
  CALL(primitive_desc_query_md) \
  CALL(primitive_desc_destroy) \
  CALL(primitive_create) \
  CALL(primitive_execute) \
  CALL(primitive_destroy) \
  CALL(get_effective_cpu_isa)
// clang-format on

class OneDnn {
 public:
  OneDnn() { status_ = Load(); }

  // One for the process; it stays loaded.
  static const OneDnn& Get() {
    static const OneDnn one;
    return one;
  }
  const Status& status() const { return status_; }
  dnnl_engine_t engine() const { return engine_; }

// A member's name cannot stand in parentheses.
#define VARVE_DECLARE_CALL(name) \
  decltype(&dnnl_##name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
  VARVE_ONEDNN_CALLS(VARVE_DECLARE_CALL)
#undef VARVE_DECLARE_CALL

  // Of the OpenMP runtime that oneDNN has brought into the process; null without one. Looked up by
  // name: which of the several runtimes it is, only oneDNN's package knows.
  int (*omp_get)() = nullptr;
  void (*omp_set)(int) = nullptr;

 private:
  Status Load() {
    const std::string file = fmt::format("libdnnl.so.{}", DNNL_VERSION_MAJOR);
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return NotFound(fmt::format("oneDNN: {}", dlerror()));
    const char* missing = nullptr;
#define VARVE_FIND_CALL(call)                                               \
  (call) = reinterpret_cast<decltype(call)>(dlsym(library, "dnnl_" #call)); \
  if ((call) == nullptr) missing = "dnnl_" #call;
    VARVE_ONEDNN_CALLS(VARVE_FIND_CALL)
#undef VARVE_FIND_CALL
    if (missing != nullptr) return NotFound(fmt::format("oneDNN: {} has no {}", file, missing));
    if (engine_create(&engine_, dnnl_cpu, 0) != dnnl_success)
      return Internal("oneDNN: no engine for the CPU");
    omp_get = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
    omp_set = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
    if (omp_get == nullptr) omp_set = nullptr;
    return Status();
  }

  Status status_;
  dnnl_engine_t engine_ = nullptr;
};

#undef VARVE_ONEDNN_CALLS

// The setting belongs to the calling thread; other threads keep theirs.
class OneThread {
 public:
  explicit OneThread(const OneDnn& dnn) : dnn_(dnn) {
    if (dnn_.omp_set == nullptr) return;
    before_ = dnn_.omp_get();
    if (before_ != 1) dnn_.omp_set(1);
  }
  ~OneThread() {
    if (dnn_.omp_set != nullptr && before_ != 1) dnn_.omp_set(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const OneDnn& dnn_;
  int before_ = 1;
};

bool ProcessorHasAmx() {
#if defined(__x86_64__)
  constexpr unsigned kAmxBf16 = 1u << 22;  // of EDX, leaf 7
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBf16) != 0;
#else
  return false;
#endif
}

}  // namespace

Status LoadOneDnn() { return OneDnn::Get().status(); }

bool OneDnnUsesAmx() {
  if (!ProcessorHasAmx() || !OneDnn::Get().status().ok()) return false;
  // The system allows it, and nobody forbade it.
  const auto isa = static_cast<unsigned>(OneDnn::Get().get_effective_cpu_isa());
  const auto amx = static_cast<unsigned>(dnnl_cpu_isa_avx512_core_amx);
  return (isa & amx) == amx;
}

struct Bf16Product::Impl {
  const OneDnn& dnn = OneDnn::Get();
  dnnl_memory_desc_t input = {}, weights = {}, output = {}, scratchpad = {};
  dnnl_primitive_t primitive = nullptr;

  ~Impl() {
    if (primitive != nullptr) dnn.primitive_destroy(primitive);
  }

  bool Describe(int64_t tokens, int64_t rows, int64_t cols) {
    const dnnl_dims_t in = {tokens, cols}, turned = {cols, rows}, out = {tokens, rows};
    return dnn.memory_desc_init_by_tag(&input, 2, in, dnnl_bf16, dnnl_ab) == dnnl_success &&
           dnn.memory_desc_init_by_tag(&weights, 2, turned, dnnl_bf16, dnnl_ba) == dnnl_success &&
           dnn.memory_desc_init_by_tag(&output, 2, out, dnnl_f32, dnnl_ab) == dnnl_success;
  }

  bool Create() {
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attributes = nullptr;
    if (dnn.matmul_desc_init(&matmul, &input, &weights, nullptr, &output) != dnnl_success ||
        dnn.primitive_attr_create(&attributes) != dnnl_success) {
      return false;
    }
    dnnl_primitive_desc_t description = nullptr;
    bool made = dnn.primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user) ==
                    dnnl_success &&
                dnn.primitive_desc_create(&description, &matmul, attributes, dnn.engine(),
                                          nullptr) == dnnl_success;
    dnn.primitive_attr_destroy(attributes);
    if (!made) return false;
    scratchpad = *dnn.primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    made = dnn.primitive_create(&primitive, description) == dnnl_success;
    dnn.primitive_desc_destroy(description);
    return made;
  }

  bool Execute(dnnl_stream_t stream, void* const (&tensors)[4]) const {
    const std::pair<int, const dnnl_memory_desc_t*> arguments[] = {
        {DNNL_ARG_SRC, &input},
        {DNNL_ARG_WEIGHTS, &weights},
        {DNNL_ARG_DST, &output},
        {DNNL_ARG_SCRATCHPAD, &scratchpad}};
    dnnl_exec_arg_t given[4] = {};
    bool done = true;
    for (int i = 0; i < 4; ++i) {
      given[i].arg = arguments[i].first;
      done = done && dnn.memory_create(&given[i].memory, arguments[i].second, dnn.engine(),
                                       tensors[i]) == dnnl_success;
    }
    done = done && dnn.primitive_execute(primitive, stream, 4, given) == dnnl_success &&
           dnn.stream_wait(stream) == dnnl_success;
    for (const dnnl_exec_arg_t& one : given) {
      if (one.memory != nullptr) dnn.memory_destroy(one.memory);
    }
    return done;
  }
};

Bf16Product::Bf16Product(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Bf16Product::~Bf16Product() = default;

std::unique_ptr<Bf16Product> Bf16Product::Make(int64_t tokens, int64_t rows, int64_t cols) {
  if (!LoadOneDnn().ok()) return nullptr;
  auto impl = std::make_unique<Impl>();
  if (!impl->Describe(tokens, rows, cols) || !impl->Create()) return nullptr;
  return std::unique_ptr<Bf16Product>(new Bf16Product(std::move(impl)));
}

size_t Bf16Product::scratch_bytes() const {
  return impl_->dnn.memory_desc_get_size(&impl_->scratchpad);
}

bool Bf16Product::Run(const uint16_t* input, const uint16_t* weights, float* out,
                      void* scratch) const {
  const OneThread one(impl_->dnn);
  dnnl_stream_t stream = nullptr;
  if (impl_->dnn.stream_create(&stream, impl_->dnn.engine(), dnnl_stream_default_flags) !=
      dnnl_success) {
    return false;
  }
  // It reads the first two.
  const bool done = impl_->Execute(
      stream, {const_cast<uint16_t*>(input), const_cast<uint16_t*>(weights), out, scratch});
  impl_->dnn.stream_destroy(stream);
  return done;
}

}  // namespace varve

// InlineBuffer: scratch of a size that is known only at run time. Up to kInline elements lie in the
// object itself, on the stack; more come from the heap. Not initialized.

#ifndef VARVE_BASE_INLINE_BUFFER_H_
#define VARVE_BASE_INLINE_BUFFER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>

namespace varve {

template <typename T, size_t kInline>
class InlineBuffer {
  static_assert(std::is_trivial_v<T>);

 public:
  InlineBuffer() {}  // NOLINT: leaves the elements as they are, `= default` with {} would not
  explicit InlineBuffer(size_t size) { Resize(size); }
  InlineBuffer(const InlineBuffer&) = delete;
  InlineBuffer& operator=(const InlineBuffer&) = delete;

  // What was there is lost.
  void Resize(size_t size) {
    size_ = size;
    if (size > kInline) heap_ = std::make_unique_for_overwrite<T[]>(size);
  }

  T* data() { return size_ > kInline ? heap_.get() : inline_; }
  const T* data() const { return size_ > kInline ? heap_.get() : inline_; }
  size_t size() const { return size_; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }

 private:
  size_t size_ = 0;
  std::unique_ptr<T[]> heap_;
  alignas(64) T inline_[kInline];
};

}  // namespace varve

#endif  // VARVE_BASE_INLINE_BUFFER_H_

#include "base/inline_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>

namespace varve {
namespace inline_buffer_test {

template <class Buffer>
bool IsInside(const Buffer& buffer) {
  const auto* object = reinterpret_cast<const std::byte*>(&buffer);
  const auto* data = reinterpret_cast<const std::byte*>(buffer.data());
  return data >= object && data < object + sizeof(buffer);
}

TEST(InlineBuffer, LiesInTheObjectWhileItFits) {
  InlineBuffer<uint16_t, 8> buffer(8);
  EXPECT_TRUE(IsInside(buffer));
  buffer.Resize(9);
  EXPECT_FALSE(IsInside(buffer));
  EXPECT_EQ(buffer.size(), 9u);
  std::iota(buffer.span().begin(), buffer.span().end(), uint16_t{0});
  EXPECT_EQ(buffer.data()[8], 8);
  buffer.Resize(2);
  EXPECT_TRUE(IsInside(buffer));
  EXPECT_EQ(buffer.span().size(), 2u);
}

TEST(InlineBuffer, IsEmptyAtFirst) {
  const InlineBuffer<uint8_t, 4> buffer;
  EXPECT_EQ(buffer.size(), 0u);
  EXPECT_TRUE(buffer.span().empty());
}

}  // namespace inline_buffer_test
}  // namespace varve

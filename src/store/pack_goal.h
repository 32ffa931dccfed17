// What packing looks for: the fewest bytes, or bytes that unpack quickly.

#ifndef VARVE_STORE_PACK_GOAL_H_
#define VARVE_STORE_PACK_GOAL_H_

#include <cstdint>

namespace varve::store {

enum class PackGoal : uint8_t {
  kSmall,  // for files and whatever is read now and then
  kQuick,  // 1 to 2 % more bytes, unpacked about three times as fast: for pages of a running cache
};

}  // namespace varve::store

#endif  // VARVE_STORE_PACK_GOAL_H_

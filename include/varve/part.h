// Part: which half of a row. K and V are stored, quantized and counted apart.

#ifndef VARVE_PART_H_
#define VARVE_PART_H_

namespace varve {

enum class Part { kKey, kValue };

}  // namespace varve

#endif  // VARVE_PART_H_

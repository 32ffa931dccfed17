// A part as one frame of the "gear predictive" format (gear_frame.h): the payload of
// PackMode::kGear.
//
// The words of the frame are the elements row by row, [row][head][channel], as in the system that
// the format comes from: pair_delta takes neighbouring channels, the others the element before.

#ifndef VARVE_STORE_GEAR_PART_H_
#define VARVE_STORE_GEAR_PART_H_

#include <cstddef>
#include <vector>

#include "base/byte_io.h"
#include "store/gear_stream.h"
#include "store/part_image.h"
#include "varve/status.h"

namespace varve::store {

// Floats only. False, with `out` as it was, if the frame would be longer than `limit`.
bool AppendGear(const PartView& part, const GearPredictorSet& set, size_t limit,
                std::vector<std::byte>& out);
Status ReadGear(ByteReader& reader, const PartShape& shape, const PartBuffer& out);

}  // namespace varve::store

#endif  // VARVE_STORE_GEAR_PART_H_

// The kernels of runtime/kernels/amx_tiles.h with tiles that are emulated, so that products in bf16
// are tested on processors that have AVX512-BF16 and no AMX. What differs from the real ones are
// six tile instructions. A tile that is used outside of a configuration ends the program.

#ifndef VARVE_TESTS_EMULATED_AMX_H_
#define VARVE_TESTS_EMULATED_AMX_H_

#include "runtime/kernels/amx_tiles.h"

namespace varve {

// Null where the processor has no AVX512-BF16, or the compiler that built this did not know AMX.
// Any thread.
const AmxKernels* FindEmulatedAmxKernels();

}  // namespace varve

#endif  // VARVE_TESTS_EMULATED_AMX_H_

#include "tests/test_data.h"

namespace varve {

// The one source that is compiled with the path: no other depends on where the checkout lies.
std::string TestDataPath(const std::string& name) {
  return name.empty() ? VARVE_TEST_DATA_DIR : VARVE_TEST_DATA_DIR "/" + name;
}

}  // namespace varve

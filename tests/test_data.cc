#include "tests/test_data.h"

namespace varve {

// Only this source is compiled with the path, so no other depends on where the checkout lies.
std::string TestDataPath(const std::string& name) {
  return name.empty() ? VARVE_TEST_DATA_DIR : VARVE_TEST_DATA_DIR "/" + name;
}

}  // namespace varve

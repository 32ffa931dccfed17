// Where the golden data of the tests lies (tests/data).

#ifndef VARVE_TESTS_TEST_DATA_H_
#define VARVE_TESTS_TEST_DATA_H_

#include <string>

namespace varve {

// The folder; with a name, that file or folder in it.
std::string TestDataPath(const std::string& name = "");

}  // namespace varve

#endif  // VARVE_TESTS_TEST_DATA_H_

# What tests and fuzzers share: the files of tests/ and tests/cache/ that are not tests (reference models).
include_guard()
file(GLOB VARVE_TEST_SUPPORT_SOURCES CONFIGURE_DEPENDS tests/*.cc tests/cache/*.cc)
list(FILTER VARVE_TEST_SUPPORT_SOURCES EXCLUDE REGEX "_test\\.cc$")
add_library(varve_test_support STATIC ${VARVE_TEST_SUPPORT_SOURCES})
target_include_directories(varve_test_support PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(varve_test_support PUBLIC varve_runtime)
set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/test_data.cc PROPERTIES
  COMPILE_DEFINITIONS VARVE_TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")

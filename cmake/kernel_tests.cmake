# VARVE_KERNELS_ONLY: the kernels and rungs of libvarve and of the runtime with their tests, for machines that have no
# more than Highway, fmt, JSON, zstd, xxHash and GoogleTest: `./dev check arm` runs them on an emulated processor.
find_package(GTest REQUIRED)

file(GLOB_RECURSE VARVE_KERNEL_TEST_SOURCES CONFIGURE_DEPENDS
  src/base/*_test.cc src/kernels/*_test.cc src/rungs/*_test.cc src/runtime/kernels/*_test.cc)
file(GLOB VARVE_PRODUCT_SOURCES CONFIGURE_DEPENDS src/runtime/kernels/*.cc)
# Files of codebooks need the test support that writes models.
list(FILTER VARVE_KERNEL_TEST_SOURCES EXCLUDE REGEX "/codebook_file_test\\.cc$")
list(FILTER VARVE_PRODUCT_SOURCES EXCLUDE REGEX "_test\\.cc$")

add_executable(varve_kernel_tests ${VARVE_KERNEL_TEST_SOURCES} ${VARVE_PRODUCT_SOURCES}
  tests/emulated_amx.cc tests/gguf_testing.cc tests/test_data.cc)
target_include_directories(varve_kernel_tests PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(varve_kernel_tests PRIVATE varve_static GTest::gtest GTest::gtest_main)
set_source_files_properties(tests/test_data.cc PROPERTIES
  COMPILE_DEFINITIONS VARVE_TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")
varve_compile_quickly(varve_kernel_tests)

# Emulation cannot start itself again, as death tests want, nor limit the threads of a process.
set(VARVE_NOT_EMULATED "*DeathTest*:ThreadPool.WorksWithTheThreadsThatTheSystemGives")
# An emulated process takes long to start: several hundred tests share one.
set(VARVE_TEST_SHARDS 8 CACHE STRING "Processes that share the tests")
math(EXPR last_shard "${VARVE_TEST_SHARDS} - 1")
foreach(shard RANGE ${last_shard})
  add_test(NAME kernel-tests-${shard} COMMAND varve_kernel_tests --gtest_brief=1 "--gtest_filter=-${VARVE_NOT_EMULATED}")
  set_tests_properties(kernel-tests-${shard} PROPERTIES TIMEOUT 1800 LABELS unit
    ENVIRONMENT "GTEST_TOTAL_SHARDS=${VARVE_TEST_SHARDS};GTEST_SHARD_INDEX=${shard}")
endforeach()

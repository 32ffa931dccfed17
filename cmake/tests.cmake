# Everything that ctest runs. Labels: `unit` (quick tests, also run under the sanitizers), `slow`
# (test suites named *Slow), `models` (suites named *OnModels: they skip where ./dev models has not brought theirs), `fuzz` (corpus replays), `tree` (checks of the repository itself),
# `example`, `package`, `cuda` (in src/cuda, where nvcc is). A folder that does not exist yet contributes nothing.
find_package(GTest REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include(GoogleTest)
include(cmake/test_support.cmake)

set(VARVE_TEST_TIMEOUT_S 120 CACHE STRING "Seconds that one quick test may take; a slow one has five times as long")
set(VARVE_TEST_SHARDS 8 CACHE STRING "Processes that share the tests of a sanitized build")
math(EXPR VARVE_SLOW_TEST_TIMEOUT_S "5 * ${VARVE_TEST_TIMEOUT_S}")

# --- unit tests: one binary ---
file(GLOB_RECURSE VARVE_TEST_SOURCES CONFIGURE_DEPENDS src/*_test.cc cli/*_test.cc)
file(GLOB VARVE_OUTER_TEST_SOURCES CONFIGURE_DEPENDS tests/*_test.cc tests/cache/*_test.cc)
list(APPEND VARVE_TEST_SOURCES ${VARVE_OUTER_TEST_SOURCES})
if(NOT HIREDIS_FOUND)
  list(FILTER VARVE_TEST_SOURCES EXCLUDE REGEX "/redis_[a-z_]*_test\\.cc$")
endif()
if(VARVE_TEST_SOURCES)
  add_executable(varve_tests ${VARVE_TEST_SOURCES})
  target_link_libraries(varve_tests PRIVATE varve_cli_objects varve_test_support GTest::gtest GTest::gtest_main)
  varve_compile_quickly(varve_tests)
  varve_group_sources(varve_tests)
  if(VARVE_SANITIZE)
    # A sanitized process takes a quarter of a second to start: several hundred tests share one.
    math(EXPR last_shard "${VARVE_TEST_SHARDS} - 1")
    foreach(shard RANGE ${last_shard})
      add_test(NAME unit-tests-${shard} COMMAND varve_tests "--gtest_filter=-*Slow.*:*Slow/*:*OnModels.*" --gtest_brief=1)
      add_test(NAME slow-tests-${shard} COMMAND varve_tests "--gtest_filter=*Slow.*:*Slow/*" --gtest_brief=1)
      set_tests_properties(unit-tests-${shard} slow-tests-${shard} PROPERTIES
        TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S}
        ENVIRONMENT "GTEST_TOTAL_SHARDS=${VARVE_TEST_SHARDS};GTEST_SHARD_INDEX=${shard}")
      set_tests_properties(unit-tests-${shard} PROPERTIES LABELS unit)
      set_tests_properties(slow-tests-${shard} PROPERTIES LABELS slow)
    endforeach()
  else()
    # Listing the tests when ctest starts, not after linking, keeps a crash at start-up a test failure.
    gtest_discover_tests(varve_tests
      DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      TEST_FILTER "-*Slow.*:*Slow/*:*OnModels.*"
      PROPERTIES LABELS unit TIMEOUT ${VARVE_TEST_TIMEOUT_S})
    gtest_discover_tests(varve_tests
      DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      TEST_FILTER "*Slow.*:*Slow/*"
      PROPERTIES LABELS slow TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S})
    gtest_discover_tests(varve_tests
      DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      TEST_FILTER "*OnModels.*"
      PROPERTIES LABELS models TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S} RUN_SERIAL ON)
  endif()
endif()

# --- fuzz corpora, replayed by an ordinary program ---
file(GLOB VARVE_FUZZER_SOURCES CONFIGURE_DEPENDS fuzz/*_fuzzer.cc)
add_custom_target(varve_fuzz_replays)
foreach(source ${VARVE_FUZZER_SOURCES})
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_fuzzer$" "" name ${name})
  add_executable(fuzz_replay_${name} ${source} fuzz/replay_main.cc)
  target_link_libraries(fuzz_replay_${name} PRIVATE varve_test_support varve_serve)
  add_dependencies(varve_fuzz_replays fuzz_replay_${name})
  add_test(NAME fuzz-replay-${name}
    COMMAND fuzz_replay_${name} ${PROJECT_SOURCE_DIR}/fuzz/corpus/${name})
  set_tests_properties(fuzz-replay-${name} PROPERTIES
    LABELS fuzz TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S})
endforeach()

# --- examples: what a user writes, so they see the shared library and include/varve alone ---
file(GLOB VARVE_EXAMPLE_SOURCES CONFIGURE_DEPENDS examples/*.cc examples/*.c)
foreach(source ${VARVE_EXAMPLE_SOURCES})
  get_filename_component(name ${source} NAME)
  string(MAKE_C_IDENTIFIER ${name} name)
  add_executable(example_${name} ${source})
  set_target_properties(example_${name} PROPERTIES
    OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
  target_link_libraries(example_${name} PRIVATE varve::varve varve_options)
  add_test(NAME example-${name} COMMAND example_${name})
  set_tests_properties(example-${name} PROPERTIES LABELS example TIMEOUT ${VARVE_TEST_TIMEOUT_S})
endforeach()

# --- the Python package, by the system's Python: what needs torch is skipped without it ---
if(VARVE_BUILD_PYTHON)
  add_test(NAME python COMMAND ${Python_EXECUTABLE} -m pytest -q -rs -p no:cacheprovider ${PROJECT_SOURCE_DIR}/python/tests)
  set_tests_properties(python PROPERTIES LABELS unit TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S}
    ENVIRONMENT "PYTHONPATH=${VARVE_PYTHON_DIR};PYTHONDONTWRITEBYTECODE=1;VARVE_BUILD_CUDA=${VARVE_BUILD_CUDA}")
endif()

# --- the page pool when allocations fail, and among threads: it replaces operator new ---
add_executable(page_pool_check tests/pool/page_pool_check.cc)
target_link_libraries(page_pool_check PRIVATE varve_static)
add_test(NAME page-pool-check COMMAND page_pool_check)
set_tests_properties(page-pool-check PROPERTIES LABELS package TIMEOUT ${VARVE_TEST_TIMEOUT_S})

# --- every kind of call when allocations fail; it replaces operator new, too. `./dev check faults` has more of them ---
add_executable(allocation_faults tests/faults/allocation_faults.cc)
target_link_libraries(allocation_faults PRIVATE varve_static)
add_test(NAME allocation-faults COMMAND allocation_faults 2000 1 ${PROJECT_BINARY_DIR})
set_tests_properties(allocation-faults PROPERTIES LABELS package TIMEOUT ${VARVE_TEST_TIMEOUT_S})

# --- demotion, eviction, packing and spilling at once, for long; `./dev check faults` runs a million steps ---
add_executable(soak tests/faults/soak.cc)
target_link_libraries(soak PRIVATE varve_static)
add_test(NAME soak COMMAND soak 20000 ${PROJECT_BINARY_DIR})
set_tests_properties(soak PROPERTIES LABELS package TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S})

# --- a disk tier that is killed while it works; `./dev check faults` kills it more often ---
add_executable(disk_tier_load tests/faults/disk_tier_load.cc)
target_link_libraries(disk_tier_load PRIVATE varve_tiers)
add_test(NAME disk-tier-kills COMMAND Python3::Interpreter
  ${PROJECT_SOURCE_DIR}/tests/faults/disk_tier_kill_test.py $<TARGET_FILE:disk_tier_load> 12)
set_tests_properties(disk-tier-kills PROPERTIES LABELS package TIMEOUT ${VARVE_TEST_TIMEOUT_S})

# --- a program compiled with the first header of the C ABI runs with the library of today ---
add_executable(old_header_test tests/old_header/old_header_test.c)
target_link_libraries(old_header_test PRIVATE varve::varve varve_options)
add_test(NAME old-header COMMAND old_header_test)
set_tests_properties(old-header PROPERTIES LABELS package TIMEOUT ${VARVE_TEST_TIMEOUT_S})

# --- public headers: each one compiles as the only include of a file, varve.h also as C ---
file(GLOB VARVE_PUBLIC_HEADERS CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/include include/varve/*.h)
set(VARVE_HEADER_CHECKS)
foreach(header ${VARVE_PUBLIC_HEADERS})
  get_filename_component(name ${header} NAME_WE)
  set(extensions cc)
  if(name STREQUAL varve)
    list(APPEND extensions c)
  endif()
  foreach(extension ${extensions})
    set(check ${PROJECT_BINARY_DIR}/header_checks/${name}_check.${extension})
    file(CONFIGURE OUTPUT ${check} CONTENT "#include \"${header}\"\nextern int varve_header_check;\n")
    list(APPEND VARVE_HEADER_CHECKS ${check})
  endforeach()
endforeach()
add_library(varve_header_checks OBJECT ${VARVE_HEADER_CHECKS})
target_include_directories(varve_header_checks PRIVATE include)
target_link_libraries(varve_header_checks PRIVATE varve_options)

# --- the repository itself: includes point down ---
add_test(NAME layers COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_layers.py ${PROJECT_SOURCE_DIR})
add_test(NAME layers-self-test COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_layers.py --self-test)
add_test(NAME functions COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_functions.py)
add_test(NAME capabilities COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_capabilities.py)
add_test(NAME cuda-option COMMAND ${CMAKE_COMMAND}
  -DSOURCE_DIR=${PROJECT_SOURCE_DIR} -DWORK_DIR=${PROJECT_BINARY_DIR}/cuda_option_test
  -DGENERATOR=${CMAKE_GENERATOR}
  -P ${PROJECT_SOURCE_DIR}/tests/cuda_option/run.cmake)
foreach(script get_models compare_llama_cpp compare_whisper_cpp serve_load)
  add_test(NAME ${script} COMMAND Python3::Interpreter -m unittest -q ${script}_test)
  set_tests_properties(${script} PROPERTIES
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tools LABELS tree TIMEOUT ${VARVE_TEST_TIMEOUT_S})
endforeach()
set_tests_properties(layers layers-self-test functions capabilities cuda-option PROPERTIES LABELS tree TIMEOUT 60)

# --- the package: install into an empty prefix, build and run an outside project against it. A
# sanitized library needs its consumers sanitized too, which is not what is tested here. ---
if(NOT VARVE_SANITIZE)
  # The program when something is in its way.
  foreach(test signals exit_codes caps full_disk completions)
    string(REPLACE "_" "-" name ${test})
    add_test(NAME ${name} COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/faults/${test}_test.py
      $<TARGET_FILE:varve_cli>)
    set_tests_properties(${name} PROPERTIES LABELS package TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S})
  endforeach()
  add_test(NAME server-tiers COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/serve/tiers_test.py
    $<TARGET_FILE:varve_cli> 3)
  set_tests_properties(server-tiers PROPERTIES LABELS package TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S})
  add_test(NAME server COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tests/serve/server_test.py
    $<TARGET_FILE:varve_cli>)
  add_test(NAME server-clients COMMAND Python3::Interpreter
    ${PROJECT_SOURCE_DIR}/tests/serve/hostile_clients_test.py $<TARGET_FILE:varve_cli>)
  set_tests_properties(server server-clients PROPERTIES
    LABELS package TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S})
  # A conversation in tmux: on the embedded model, and on SmolLM2 where ./dev models has brought it.
  foreach(talk embedded smollm2)
    set(talk_model)
    if(talk STREQUAL smollm2)
      set(talk_model --model smollm2)
    endif()
    add_test(NAME conversation-${talk} COMMAND Python3::Interpreter
      ${PROJECT_SOURCE_DIR}/tests/terminal/conversation_test.py $<TARGET_FILE:varve_cli> ${talk_model})
    set_tests_properties(conversation-${talk} PROPERTIES LABELS package SKIP_RETURN_CODE 77
      TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S})
  endforeach()
  set_tests_properties(conversation-smollm2 PROPERTIES LABELS models)
  add_test(NAME exports COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/check_exports.py
    $<TARGET_FILE:varve_shared> ${PROJECT_SOURCE_DIR}/include --nm ${CMAKE_NM})
  set_tests_properties(exports PROPERTIES LABELS package TIMEOUT 60)
  add_test(NAME consumer COMMAND ${CMAKE_COMMAND}
    -DBUILD_DIR=${PROJECT_BINARY_DIR}
    -DSOURCE_DIR=${PROJECT_SOURCE_DIR}/tests/consumer
    -DWORK_DIR=${PROJECT_BINARY_DIR}/consumer_test
    -DLIBDIR=${CMAKE_INSTALL_LIBDIR}
    -DGENERATOR=${CMAKE_GENERATOR}
    -DCXX=${CMAKE_CXX_COMPILER}
    -DPKG_CONFIG=${PKG_CONFIG_EXECUTABLE}
    -DREADELF=${CMAKE_READELF}
    -DSTATIC=$<NOT:$<BOOL:${VARVE_BUILD_CUDA}>>
    -DVERSION=${PROJECT_VERSION}
    -P ${PROJECT_SOURCE_DIR}/tests/consumer/run.cmake)
  set_tests_properties(consumer PROPERTIES LABELS package TIMEOUT ${VARVE_SLOW_TEST_TIMEOUT_S})
endif()

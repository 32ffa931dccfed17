# One interface target with the flags that every target of the tree shares.
add_library(varve_options INTERFACE)
target_compile_options(varve_options INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow>
  # The formats promise ggml's codes bit for bit, so the compiler must not fuse a*b+c by itself.
  $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)

# GCC 12 sees overlap in `"text" + std::string` (GCC bug 105651, fixed in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(varve_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(VARVE_SANITIZE)
  # VARVE_SANITIZED is for the few tests whose subject (resident memory, time) a sanitizer changes.
  target_compile_definitions(varve_options INTERFACE VARVE_SANITIZED=1)
  target_compile_options(varve_options INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${VARVE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all>)
  # For varve_compile_quickly: four checks of pointers that take a third of the compile time of a sanitized
  # test (6.5 s -> 4.4 s). The library keeps them, and AddressSanitizer finds most of what they find.
  if(VARVE_SANITIZE MATCHES "undefined")
    target_compile_options(varve_options INTERFACE
      $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:$<TARGET_PROPERTY:VARVE_QUICK>>>:-fno-sanitize=null,alignment,vptr,object-size>)
  endif()
  target_link_options(varve_options INTERFACE -fsanitize=${VARVE_SANITIZE})
endif()

# Tests and the program's subcommands call the library, which keeps the flags of the preset. They themselves need
# little of the optimiser: with -O1 they compile in three quarters of the time.
function(varve_compile_quickly target)
  if(VARVE_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O0>)
    set_target_properties(${target} PROPERTIES VARVE_QUICK ON)
  else()
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O1>)
  endif()
endfunction()

# A benchmark of an unoptimised library misleads, so a bare `cmake -B build` is a release build too.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

# ccache, where present, makes the second of two build trees cheap. A launcher that the user chose wins.
find_program(VARVE_CCACHE ccache)
if(VARVE_CCACHE)
  foreach(language C CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${VARVE_CCACHE})
    endif()
  endforeach()
endif()

# Without ccache the time of a first build counts. Small sources of tests and subcommands spend it in the
# headers of GoogleTest, CLI11 and JSON. So they are compiled eight at a time (CMake's unity builds), and
# the library's sources share a precompiled <fmt/format.h>. For this, the names of a test file are in a
# namespace with the name of the file, and helpers of subcommands have names that are unique in cli/.
# With ccache small sources and plain includes are better.
set(VARVE_UNITY AUTO CACHE STRING "Compile tests and subcommands eight at a time: ON, OFF or AUTO (without ccache)")
if(VARVE_UNITY STREQUAL "AUTO")
  set(VARVE_GROUPS ON)
  if("${CMAKE_CXX_COMPILER_LAUNCHER}" MATCHES "ccache")
    set(VARVE_GROUPS OFF)
  endif()
else()
  set(VARVE_GROUPS ${VARVE_UNITY})
endif()

function(varve_group_sources target)
  if(VARVE_GROUPS)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# varve_precompile(TARGET HEADER...): headers of others, parsed once for the target.
function(varve_precompile target)
  if(VARVE_GROUPS)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # With a precompiled header GCC 12 also warns of its own <string> (the bug above). Builds with ccache
    # keep these warnings on.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow -Wno-array-bounds>)
    endif()
  endif()
endfunction()

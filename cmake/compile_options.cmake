# One interface target with the flags that every target of the tree shares.
add_library(varve_options INTERFACE)
target_compile_options(varve_options INTERFACE
  $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Wpedantic -Wshadow>
  # The formats promise ggml's codes bit for bit: a*b+c must not become a fused operation unasked.
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
  # For varve_compile_quickly: four checks of pointers, a third of the compile time of a sanitized test
  # (6.5 s -> 4.4 s). The library has them, and AddressSanitizer sees most of what they see.
  if(VARVE_SANITIZE MATCHES "undefined")
    target_compile_options(varve_options INTERFACE
      $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<BOOL:$<TARGET_PROPERTY:VARVE_QUICK>>>:-fno-sanitize=null,alignment,vptr,object-size>)
  endif()
  target_link_options(varve_options INTERFACE -fsanitize=${VARVE_SANITIZE})
endif()

# Tests and, under a sanitizer, the program's subcommands are compiled once and run for seconds: they
# need no optimiser. The library keeps the flags of the preset.
function(varve_compile_quickly target)
  if(VARVE_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O0>)
    set_target_properties(${target} PROPERTIES VARVE_QUICK ON)
  elseif("${ARGN}" STREQUAL "TEST")
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

# Without ccache a first build is what counts. There the small sources of tests and subcommands, whose
# time goes to the headers of GoogleTest, CLI11 and JSON, are compiled eight at a time (CMake's unity
# builds), and the library's sources share a precompiled <fmt/format.h>. So that they can: a test's names
# are in a namespace called like its file, and helpers of subcommands have names of their own within cli/.
# ccache wants small sources and plain includes.
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
    # Behind a precompiled header GCC 12 warns of its own <string>, too (the bug above); builds with ccache
    # look for what these would find.
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
      target_compile_options(${target} PRIVATE
        $<$<COMPILE_LANGUAGE:CXX>:-Wno-stringop-overflow -Wno-array-bounds>)
    endif()
  endif()
endfunction()

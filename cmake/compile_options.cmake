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
  target_link_options(varve_options INTERFACE -fsanitize=${VARVE_SANITIZE})
endif()

# Tests and, under a sanitizer, the program's subcommands are compiled once and run for seconds: they
# need no optimiser. The library keeps the flags of the preset.
function(varve_compile_quickly target)
  if(VARVE_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-O0>)
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

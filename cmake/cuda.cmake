# The GPU kernels of src/cuda: the library varve_cuda, its tests and its benchmark, and the back end that libvarve has
# with them. AUTO builds them where nvcc is, ON insists, OFF leaves them out: libvarve then is as on a machine without.
set(VARVE_CUDA AUTO CACHE STRING "Build the GPU kernels of src/cuda: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE VARVE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(VARVE_NVCC_NAME nvcc CACHE STRING "Name of the CUDA compiler, to look for on PATH and under CUDA's folders")

set(VARVE_BUILD_CUDA OFF)
if(VARVE_CUDA)
  find_program(VARVE_NVCC ${VARVE_NVCC_NAME} HINTS ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(VARVE_NVCC)
    set(VARVE_BUILD_CUDA ON)
    # 12.0 was the first with C++20 and sm_90a. Debian 12 has 11.8.
    execute_process(COMMAND ${VARVE_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" nvcc_version "${nvcc_version}")
    set(nvcc_version "${CMAKE_MATCH_1}")
    if(NOT nvcc_version OR nvcc_version VERSION_LESS 12.0)
      set(old "${VARVE_NVCC} is of CUDA ${nvcc_version}; the GPU kernels need 12.0 or later")
      if(NOT VARVE_CUDA STREQUAL "AUTO")
        message(FATAL_ERROR "VARVE_CUDA=${VARVE_CUDA}: ${old}")
      endif()
      message(STATUS "${old}: left out")
      set(VARVE_BUILD_CUDA OFF)
    endif()
  elseif(NOT VARVE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "VARVE_CUDA=${VARVE_CUDA} needs nvcc: put it on PATH, or set CUDA_PATH. "
                        "Leave VARVE_CUDA at AUTO to build for the CPU alone.")
  endif()
endif()
# Sanitizers of the host and libFuzzer see nothing of device code.
if(VARVE_KERNELS_ONLY OR (VARVE_CUDA STREQUAL "AUTO" AND (VARVE_SANITIZE OR VARVE_BUILD_FUZZERS)))
  set(VARVE_BUILD_CUDA OFF)
endif()
# For those who ask the build folder afterwards (./dev wheel).
set(VARVE_BUILD_CUDA ${VARVE_BUILD_CUDA} CACHE INTERNAL "Whether the GPU kernels are built")

# VARVE_CUDA=ON without nvcc stops the configuration and says why; AUTO and OFF need none. Configures an
# empty project with the build's own cuda.cmake, which looks for a compiler that is not there.
#   cmake -DSOURCE_DIR=... -DWORK_DIR=... -DGENERATOR=... -P run.cmake

file(REMOVE_RECURSE ${WORK_DIR})
file(WRITE ${WORK_DIR}/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.25)\nproject(empty NONE)\ninclude(${SOURCE_DIR}/cmake/cuda.cmake)\n"
  "if(VARVE_BUILD_CUDA)\n  message(FATAL_ERROR \"builds without nvcc\")\nendif()\n")

function(configure value)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${WORK_DIR} -B ${WORK_DIR}/${value} -DVARVE_CUDA=${value}
            -DVARVE_NVCC_NAME=no-such-nvcc
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE errors)
  set(result ${result} PARENT_SCOPE)
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  set(errors "${errors}" PARENT_SCOPE)
endfunction()

foreach(value OFF AUTO)
  configure(${value})
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "VARVE_CUDA=${value} does not configure: ${errors}")
  endif()
endforeach()
configure(ON)
if(result EQUAL 0)
  message(FATAL_ERROR "VARVE_CUDA=ON configures without nvcc")
endif()
if(NOT errors MATCHES "VARVE_CUDA=ON needs nvcc")
  message(FATAL_ERROR "VARVE_CUDA=ON fails for another reason: ${errors}")
endif()

# VARVE_CUDA=ON without sources stops the configuration and says why; OFF needs none. Configures an
# empty project with the build's own cuda.cmake: no compiler is looked for, so this takes no time.
#   cmake -DSOURCE_DIR=... -DWORK_DIR=... -DGENERATOR=... -P run.cmake

file(REMOVE_RECURSE ${WORK_DIR})
file(WRITE ${WORK_DIR}/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.25)\nproject(empty NONE)\ninclude(${SOURCE_DIR}/cmake/cuda.cmake)\n")

function(configure value)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${WORK_DIR} -B ${WORK_DIR}/${value} -DVARVE_CUDA=${value}
    RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE errors)
  set(result ${result} PARENT_SCOPE)
  string(REGEX REPLACE "[ \n]+" " " errors "${errors}")
  set(errors "${errors}" PARENT_SCOPE)
endfunction()

configure(OFF)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "VARVE_CUDA=OFF does not configure: ${errors}")
endif()
configure(ON)
if(result EQUAL 0)
  message(FATAL_ERROR "VARVE_CUDA=ON configures without a .cu file")
endif()
if(NOT errors MATCHES "VARVE_CUDA=ON, but src/cuda has no .cu file")
  message(FATAL_ERROR "VARVE_CUDA=ON fails for another reason: ${errors}")
endif()

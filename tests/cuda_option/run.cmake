# VARVE_CUDA=ON without nvcc stops the configuration and says why; AUTO and OFF need none. The same with an nvcc that is
# too old. Configures an empty project with the build's own cuda.cmake, which looks for a compiler that is not there, or is
# given one that only knows its version.
#   cmake -DSOURCE_DIR=... -DWORK_DIR=... -DGENERATOR=... -P run.cmake

file(REMOVE_RECURSE ${WORK_DIR})
file(WRITE ${WORK_DIR}/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.25)\nproject(empty NONE)\ninclude(${SOURCE_DIR}/cmake/cuda.cmake)\n"
  "if(VARVE_BUILD_CUDA)\n  message(FATAL_ERROR \"builds the kernels\")\nendif()\n")

function(write_nvcc name text)
  file(WRITE ${WORK_DIR}/${name} "#!/bin/sh\necho '${text}'\n")
  file(CHMOD ${WORK_DIR}/${name} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()
write_nvcc(nvcc-11 "Cuda compilation tools, release 11.8, V11.8.89")
write_nvcc(nvcc-12 "Cuda compilation tools, release 12.0, V12.0.140")
write_nvcc(nvcc-odd "nothing")

# configure(ON|OFF|AUTO [nvcc])
function(configure value)
  set(nvcc)
  if(ARGV1)
    set(nvcc -DVARVE_NVCC=${WORK_DIR}/${ARGV1})
  endif()
  execute_process(
    COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${WORK_DIR} -B ${WORK_DIR}/${value}${ARGV1} -DVARVE_CUDA=${value}
            -DVARVE_NVCC_NAME=no-such-nvcc ${nvcc}
    RESULT_VARIABLE result OUTPUT_VARIABLE says ERROR_VARIABLE errors)
  set(says "${says}" PARENT_SCOPE)
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

foreach(nvcc nvcc-11 nvcc-odd)
  configure(AUTO ${nvcc})
  if(NOT result EQUAL 0 OR NOT says MATCHES "need 12.0 or later: left out")
    message(FATAL_ERROR "VARVE_CUDA=AUTO does not leave out the kernels with ${nvcc}: ${says} ${errors}")
  endif()
endforeach()
configure(ON nvcc-11)
if(result EQUAL 0 OR NOT errors MATCHES "VARVE_CUDA=ON: .*nvcc-11 is of CUDA 11.8; the GPU kernels need 12.0 or later")
  message(FATAL_ERROR "VARVE_CUDA=ON does not refuse nvcc 11.8: ${errors}")
endif()
foreach(value ON AUTO)
  configure(${value} nvcc-12)
  if(result EQUAL 0 OR NOT errors MATCHES "builds the kernels")
    message(FATAL_ERROR "VARVE_CUDA=${value} does not take nvcc 12.0: ${errors}")
  endif()
endforeach()

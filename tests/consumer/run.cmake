# cmake -P script of the ctest entry `consumer`: installs the build tree into an empty prefix, builds
# the project beside this file through find_package and again through pkg-config, and runs both.
# Needs: BUILD_DIR SOURCE_DIR WORK_DIR LIBDIR GENERATOR CXX PKG_CONFIG READELF VERSION STATIC
cmake_minimum_required(VERSION 3.25)
set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
file(MAKE_DIRECTORY ${WORK_DIR})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Runs a program and fails unless it names the plan that it parsed.
function(run_consumer program)
  execute_process(COMMAND ${program} OUTPUT_VARIABLE output COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
  if(NOT output MATCHES "^plan .*q8_0")
    message(FATAL_ERROR "${program} printed \"${output}\", not the plan")
  endif()
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
if(STATIC)
  run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix} --component static)
endif()
# Configured in the prefix's new place: the package must not remember where it was installed.
file(RENAME ${prefix} ${prefix}-moved)
set(prefix ${prefix}-moved)
run(${prefix}/bin/varve --version)

# --- what comes beside the library and the program ---
foreach(file share/doc/varve/LICENSE share/man/man1/varve.1 share/bash-completion/completions/varve
             share/zsh/site-functions/_varve share/fish/vendor_completions.d/varve.fish)
  file(SIZE ${prefix}/${file} bytes) # an error if it is not there
  if(bytes LESS 500)
    message(FATAL_ERROR "${file}: ${bytes} bytes")
  endif()
endforeach()
foreach(file bin/varve ${LIBDIR}/libvarve.so)
  execute_process(COMMAND ${READELF} -S ${prefix}/${file} OUTPUT_VARIABLE sections COMMAND_ERROR_IS_FATAL ANY)
  if(sections MATCHES "debug_info")
    message(FATAL_ERROR "${file}: is installed with debug information")
  endif()
  execute_process(COMMAND ${READELF} -d ${prefix}/${file} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
  if(needed MATCHES "OpenCL|gfortran|lapack|blas|dnnl")
    message(FATAL_ERROR "${file}: needs what it must not:\n${needed}")
  endif()
endforeach()

# --- find_package ---
run(${CMAKE_COMMAND} -S ${SOURCE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
  -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${prefix}
  -DVARVE_EXPECTED_VERSION=${VERSION})
run(${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run_consumer(${WORK_DIR}/build/consumer)
if(STATIC)
  run_consumer(${WORK_DIR}/build/consumer_static)
endif()

# --- pkg-config ---
set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --modversion varve
  OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT version STREQUAL VERSION)
  message(FATAL_ERROR "pkg-config says version ${version}, not ${VERSION}")
endif()
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs varve
  OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
run(${CXX} -std=c++20 ${SOURCE_DIR}/main.cc ${flags} -o ${WORK_DIR}/consumer_pc)
set(ENV{LD_LIBRARY_PATH} ${prefix}/${LIBDIR})
run_consumer(${WORK_DIR}/consumer_pc)

# The Python package (python/): varve._native against libvarve, beside a copy of the Python sources, in
# build/python. `PYTHONPATH=build/python python3 -c 'import varve'` uses it as it is. `pip install .`
# (pyproject.toml) builds the same and installs the component `python`.
#   AUTO  where pybind11 and Python's headers are
#   ON    as an error where they are not
set(VARVE_PYTHON AUTO CACHE STRING "Build the Python package: AUTO, ON or OFF")
set(VARVE_BUILD_PYTHON OFF)
if(VARVE_SANITIZE OR NOT VARVE_PYTHON)
  return() # an interpreter without the sanitizer cannot load it
endif()
if(VARVE_PYTHON STREQUAL "AUTO")
  # The system's own: that is whose NumPy and pytest ./dev installs.
  if(NOT DEFINED Python_EXECUTABLE AND EXISTS /usr/bin/python3)
    set(Python_EXECUTABLE /usr/bin/python3)
  endif()
  find_package(Python COMPONENTS Interpreter Development.Module)
  find_package(pybind11 CONFIG QUIET)
else()
  find_package(Python REQUIRED COMPONENTS Interpreter Development.Module)
  find_package(pybind11 CONFIG REQUIRED)
endif()
if(NOT Python_Development.Module_FOUND OR NOT pybind11_FOUND)
  message(STATUS "no Python package: pybind11 or Python's headers are missing")
  return()
endif()
set(VARVE_BUILD_PYTHON ON)

set(VARVE_PYTHON_DIR ${PROJECT_BINARY_DIR}/python)
file(GLOB VARVE_PYTHON_SOURCES CONFIGURE_DEPENDS python/native/*.cc)
pybind11_add_module(varve_python MODULE NO_EXTRAS ${VARVE_PYTHON_SOURCES})
target_link_libraries(varve_python PRIVATE varve_shared varve_options)
target_compile_definitions(varve_python PRIVATE VARVE_PYTHON_VERSION="${PROJECT_VERSION}")
set_target_properties(varve_python PROPERTIES
  OUTPUT_NAME _native LIBRARY_OUTPUT_DIRECTORY ${VARVE_PYTHON_DIR}/varve
  CXX_VISIBILITY_PRESET hidden INSTALL_RPATH "$ORIGIN")
varve_compile_quickly(varve_python)
varve_precompile(varve_python <pybind11/pybind11.h> <pybind11/stl.h>)
file(GLOB_RECURSE VARVE_PYTHON_FILES CONFIGURE_DEPENDS python/varve/*.py python/varve/*.pyi python/varve/py.typed)
add_custom_command(TARGET varve_python POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy_directory
  ${PROJECT_SOURCE_DIR}/python/varve ${VARVE_PYTHON_DIR}/varve)
set_target_properties(varve_python PROPERTIES LINK_DEPENDS "${VARVE_PYTHON_FILES}")

# Beside the module, so that the wheel needs nothing that is installed. The links are for linking.
install(TARGETS varve_python LIBRARY DESTINATION varve COMPONENT python EXCLUDE_FROM_ALL)
install(TARGETS varve_shared LIBRARY DESTINATION varve COMPONENT python NAMELINK_SKIP EXCLUDE_FROM_ALL)
# The one name that the module asks for: a wheel has no links, and would have the library twice.
install(CODE "file(RENAME \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/varve/$<TARGET_FILE_NAME:varve_shared>\"
  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/varve/$<TARGET_SONAME_FILE_NAME:varve_shared>\")" COMPONENT python EXCLUDE_FROM_ALL)

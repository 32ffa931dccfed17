# What is installed: libvarve.so, include/varve, the program, and the two ways to find them
# (find_package(varve) and pkg-config). The library is shared, so a consumer needs no headers or CMake
# packages of the libraries inside it (Highway, fmt, JSON).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The target is not called `varve`: under Ninja that name is the program's path.
add_library(varve_shared SHARED)
add_library(varve::varve ALIAS varve_shared)
target_link_libraries(varve_shared PRIVATE $<BUILD_INTERFACE:varve_objects>)
if(VARVE_BUILD_CUDA)
  target_link_libraries(varve_shared PRIVATE $<BUILD_INTERFACE:varve_cuda_backend>)
  target_link_options(varve_shared PRIVATE "LINKER:--exclude-libs,libvarve_cuda.a") # no API of ours
endif()
target_include_directories(varve_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(varve_shared INTERFACE cxx_std_20)

# Before 1.0 a minor version may change the ABI, so both numbers are the soname.
set_target_properties(varve_shared PROPERTIES
  OUTPUT_NAME varve
  EXPORT_NAME varve
  LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/varve.map)
target_link_options(varve_shared PRIVATE
  LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/varve.map)
if(NOT VARVE_SANITIZE)
  target_link_options(varve_shared PRIVATE LINKER:--no-undefined)
endif()

set(VARVE_CONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/varve)
install(TARGETS varve_shared EXPORT varve-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS varve_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/varve DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT varve-targets NAMESPACE varve:: DESTINATION ${VARVE_CONFIG_DIR})

configure_package_config_file(cmake/varve-config.cmake.in ${PROJECT_BINARY_DIR}/varve-config.cmake
  INSTALL_DESTINATION ${VARVE_CONFIG_DIR}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/varve-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/varve-config.cmake ${PROJECT_BINARY_DIR}/varve-config-version.cmake
  DESTINATION ${VARVE_CONFIG_DIR})

# The .pc file finds its prefix from its own place, so that `cmake --install --prefix` and moving the
# tree afterwards both work. The paths are relative to <libdir>/pkgconfig.
set(VARVE_PC_DIR ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH VARVE_PC_INCLUDEDIR ${VARVE_PC_DIR} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
file(RELATIVE_PATH VARVE_PC_PREFIX ${VARVE_PC_DIR} ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/varve.pc.in ${PROJECT_BINARY_DIR}/varve.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/varve.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

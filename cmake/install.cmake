# What is installed: libvarve.so, include/varve, the program with its manual page and completions, the
# licence, and the two ways to find the library (find_package(varve) and pkg-config). It is shared, so a
# consumer needs no headers or CMake packages of the libraries inside it (Highway, fmt, JSON). The
# static library is a component of its own: cmake --install build --component static.
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

option(VARVE_INSTALL_STRIPPED "Install without debug information, which stays in the build tree" ON)
if(VARVE_INSTALL_STRIPPED)
  # As with `cmake --install --strip`, for the targets below.
  install(CODE "set(CMAKE_INSTALL_DO_STRIP ON)")
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

# --- the static library. Nothing of it is exported by CMake: its parts are object libraries; what it
# needs (Highway, fmt, zstd) stands in the .pc file and in varve-config.cmake ---
if(NOT VARVE_BUILD_CUDA)
  install(FILES $<TARGET_FILE:varve_static> DESTINATION ${CMAKE_INSTALL_LIBDIR} RENAME libvarve.a
    COMPONENT static EXCLUDE_FROM_ALL)
  if(VARVE_INSTALL_STRIPPED)
    install(CODE "execute_process(COMMAND ${CMAKE_STRIP} --strip-debug
      \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libvarve.a COMMAND_ERROR_IS_FATAL ANY)"
      COMPONENT static EXCLUDE_FROM_ALL)
  endif()
endif()

# --- what comes beside the program, printed by itself ---
if(NOT CMAKE_CROSSCOMPILING)
  set(VARVE_BESIDE ${PROJECT_BINARY_DIR}/beside)
  file(MAKE_DIRECTORY ${VARVE_BESIDE})
  set(VARVE_BESIDE_FILES)
  foreach(pair "varve=completions bash" "_varve=completions zsh" "varve.fish=completions fish" "varve.1=manual")
    string(REGEX MATCH "^([^=]+)=(.*)$" pair "${pair}")
    set(file ${VARVE_BESIDE}/${CMAKE_MATCH_1})
    separate_arguments(arguments UNIX_COMMAND "${CMAKE_MATCH_2}")
    add_custom_command(OUTPUT ${file} COMMAND varve_cli ${arguments} > ${file} DEPENDS varve_cli VERBATIM)
    list(APPEND VARVE_BESIDE_FILES ${file})
  endforeach()
  add_custom_target(varve_beside ALL DEPENDS ${VARVE_BESIDE_FILES})
  install(FILES ${VARVE_BESIDE}/varve DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${VARVE_BESIDE}/_varve DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${VARVE_BESIDE}/varve.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  install(FILES ${VARVE_BESIDE}/varve.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

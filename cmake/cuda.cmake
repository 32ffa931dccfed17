# The GPU back end: src/cuda/*.cu joins the library when VARVE_CUDA is on. Without it the CPU build is
# complete. With it, missing sources or a missing nvcc are errors: nobody who asks for a GPU gets a
# library for the CPU alone.
if(VARVE_CUDA)
  file(GLOB VARVE_CUDA_SOURCES CONFIGURE_DEPENDS src/cuda/*.cu)
  if(NOT VARVE_CUDA_SOURCES)
    message(FATAL_ERROR "VARVE_CUDA=ON, but src/cuda has no .cu file in this version. "
                        "Leave VARVE_CUDA off to build the library for the CPU.")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "VARVE_CUDA=ON needs nvcc: put it on PATH or set CMAKE_CUDA_COMPILER")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  target_sources(varve_objects PRIVATE ${VARVE_CUDA_SOURCES})
  target_compile_definitions(varve_objects PUBLIC VARVE_CUDA=1)
  target_link_libraries(varve_objects PUBLIC CUDA::cudart_static)
endif()

# CUDA kernels as text inside the library, and a pack of cubins where a CUDA compiler is present. With
# AF_CUBINS=ON every kernel is compiled for the shipped architectures by NVRTC; results are kept in the build
# folder, so that only changed kernels are compiled again.
option(AF_CUBINS "ship machine code of the CUDA kernels (needs NVRTC; minutes the first time)" OFF)
set(AF_CUBIN_ARCHS "sm_80,sm_86,sm_89,sm_90a,sm_100,sm_120" CACHE STRING "architectures of that pack")
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB AF_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/ops/*.cu ${CMAKE_SOURCE_DIR}/src/ops/*.cuh
     ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cuh)
set(AF_EMBED ${CMAKE_SOURCE_DIR}/tools/embed-kernels)
set(AF_GENERATED ${CMAKE_BINARY_DIR}/generated)
add_custom_command(OUTPUT ${AF_GENERATED}/kernel_sources.c
    COMMAND ${Python3_EXECUTABLE} ${AF_EMBED} sources ${AF_GENERATED}/kernel_sources.c ${AF_KERNELS}
    DEPENDS ${AF_KERNELS} ${AF_EMBED} VERBATIM)
if(AF_CUBINS)
    add_custom_command(OUTPUT ${AF_GENERATED}/kernel_cubins.c ${AF_GENERATED}/kernel_cubins.bin
        COMMAND ${Python3_EXECUTABLE} ${AF_EMBED} pack ${AF_GENERATED}/kernel_cubins.c
                ${AF_GENERATED}/kernel_cubins.bin ${CMAKE_BINARY_DIR}/cubins ${AF_CUBIN_ARCHS} ${AF_KERNELS}
        DEPENDS ${AF_KERNELS} ${AF_EMBED} VERBATIM)
    set_source_files_properties(${AF_GENERATED}/kernel_cubins.c PROPERTIES
        OBJECT_DEPENDS ${AF_GENERATED}/kernel_cubins.bin)
else()
    add_custom_command(OUTPUT ${AF_GENERATED}/kernel_cubins.c
        COMMAND ${Python3_EXECUTABLE} ${AF_EMBED} empty ${AF_GENERATED}/kernel_cubins.c
        DEPENDS ${AF_EMBED} VERBATIM)
endif()
add_library(af_kernel_text OBJECT ${AF_GENERATED}/kernel_sources.c ${AF_GENERATED}/kernel_cubins.c)
target_link_libraries(af_kernel_text PRIVATE af_flags)
set_target_properties(af_kernel_text PROPERTIES POSITION_INDEPENDENT_CODE ON)
set(AF_KERNEL_OBJECTS $<TARGET_OBJECTS:af_kernel_text>)

# CUDA kernels as text inside the library, and a pack of cubins where a CUDA compiler (NVRTC) is present: AF_CUBINS is
# none, common (what ordinary runs ask for), all, or auto = common where NVRTC can be loaded. Results are kept in
# build/cubins, so that only changed kernels are compiled again. Times and sizes: docs/decisions/0011-shipped-cubins.md.
set(AF_CUBINS "auto" CACHE STRING "machine code of the CUDA kernels: none, common, all, or auto")
set(AF_CUBIN_ARCHS "sm_80,sm_86,sm_89,sm_90a,sm_100,sm_120" CACHE STRING "architectures of that pack")
find_package(Python3 REQUIRED COMPONENTS Interpreter)
file(GLOB_RECURSE AF_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*.cu ${CMAKE_SOURCE_DIR}/src/*.cuh)
set(AF_EMBED ${CMAKE_SOURCE_DIR}/tools/embed-kernels)
set(AF_GENERATED ${CMAKE_BINARY_DIR}/generated)
add_custom_command(OUTPUT ${AF_GENERATED}/kernel_sources.c
    COMMAND ${Python3_EXECUTABLE} ${AF_EMBED} sources ${AF_GENERATED}/kernel_sources.c ${AF_KERNELS}
    DEPENDS ${AF_KERNELS} ${AF_EMBED} VERBATIM)
set(AF_CUBIN_SET ${AF_CUBINS})
if(AF_CUBINS STREQUAL "auto")
    execute_process(COMMAND ${Python3_EXECUTABLE} ${AF_EMBED} can RESULT_VARIABLE AF_NO_NVRTC OUTPUT_QUIET ERROR_QUIET)
    if(AF_NO_NVRTC EQUAL 0)
        set(AF_CUBIN_SET common)
    else()
        set(AF_CUBIN_SET none)
    endif()
elseif(AF_CUBINS STREQUAL "ON")
    set(AF_CUBIN_SET all)
elseif(AF_CUBINS STREQUAL "OFF")
    set(AF_CUBIN_SET none)
elseif(NOT AF_CUBINS MATCHES "^(none|common|all)$")
    message(FATAL_ERROR "AF_CUBINS is '${AF_CUBINS}', not none, common, all or auto")
endif()
string(FIND "${CMAKE_BINARY_DIR}" "${CMAKE_SOURCE_DIR}/build" AF_IN_TREE)
if(AF_IN_TREE EQUAL 0) # one folder for build, build/asan, ...
    set(AF_CUBIN_CACHE ${CMAKE_SOURCE_DIR}/build/cubins)
else()
    set(AF_CUBIN_CACHE ${CMAKE_BINARY_DIR}/cubins)
endif()
if(NOT AF_CUBIN_SET STREQUAL "none")
    add_custom_command(OUTPUT ${AF_GENERATED}/kernel_cubins.c ${AF_GENERATED}/kernel_cubins.bin
        COMMAND ${Python3_EXECUTABLE} ${AF_EMBED} pack ${AF_CUBIN_SET} ${AF_GENERATED}/kernel_cubins.c
                ${AF_GENERATED}/kernel_cubins.bin ${AF_CUBIN_CACHE} ${AF_CUBIN_ARCHS} ${AF_KERNELS}
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

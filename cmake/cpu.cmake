# src/cpu holds the fast CPU kernels. Each file is compiled once for every instruction set of the
# target family with AF_ISA naming it; the program picks one at run time (src/cpu/).
file(GLOB_RECURSE AF_FAST_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cpu/*.c)
# products and sums contract here; of the source, so that it comes after the project's -ffp-contract=off
set_property(SOURCE ${AF_FAST_SOURCES} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=fast)
# -O3 under the sanitizers too (loops unroll into lane numbers), but for the one file that takes half a minute then
if(AF_LOOPS STREQUAL "-O1")
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/cpu/gemm/fast_block.c APPEND PROPERTY COMPILE_OPTIONS -O1)
endif()
set(AF_FAST_OBJECTS "")
function(af_fast isa)
    if(NOT AF_FAST_SOURCES)
        return()
    endif()
    add_library(af_fast_${isa} OBJECT ${AF_FAST_SOURCES})
    target_link_libraries(af_fast_${isa} PRIVATE af_flags)
    target_compile_definitions(af_fast_${isa} PRIVATE AF_ISA=${isa} AF_ISA_${isa}=1)
    # no trapping maths is what makes these loops vectorise; results stay deterministic
    target_compile_options(af_fast_${isa} PRIVATE -O3 -fno-trapping-math
        $<$<C_COMPILER_ID:GNU>:-fno-schedule-insns> ${ARGN})
    set_target_properties(af_fast_${isa} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    set(AF_FAST_OBJECTS ${AF_FAST_OBJECTS} $<TARGET_OBJECTS:af_fast_${isa}> PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    af_fast(sse2)
    af_fast(avx2 -mavx2 -mfma -mf16c)
    af_fast(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
    af_fast(amx -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512bf16 -mfma -mf16c -mprefer-vector-width=512
        -mamx-tile -mamx-bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    af_fast(neon)
    af_fast(neonbf16 -march=armv8.2-a+bf16+fp16+dotprod+i8mm)
else()
    af_fast(portable)
endif()

# src/cpu holds the fast CPU kernels. Each file is compiled once per instruction set of the target
# family, with AF_ISA naming it and AF_ISA_HEADER its header; the program picks a table at run time
# (cpu_dispatch.c). Files that know no instruction set are compiled once; amx/, neon/ and x86/ only
# for theirs, in place of the generic file they replace.
file(GLOB_RECURSE AF_FAST_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cpu/*.c)
# multiplications and sums contract here; of the source, so that it comes after the project's -ffp-contract=off
set_property(SOURCE ${AF_FAST_SOURCES} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=fast)
# -O1 under the sanitizers, but not here: unrolled, the sums are registers and not checked memory, which was a third of what
# training takes in the tests. What is read and written is checked as before.
if(AF_SANITIZE MATCHES "address|thread" AND NOT AF_FUZZ)
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/cpu/gemm/gemm_small.c ${CMAKE_SOURCE_DIR}/src/cpu/rows/rows.c
        APPEND PROPERTY COMPILE_OPTIONS -O3)
    # a fifth of what training takes there; -O3 compiles for four times as long and runs no faster
    set_property(SOURCE ${CMAKE_SOURCE_DIR}/src/cpu/gemm/gemm_tile.c APPEND PROPERTY COMPILE_OPTIONS -O2)
endif()
set(AF_FAST_ONCE "/cpu_dispatch\\.c|/gemm_machine\\.c|/gemm_plan\\.c")
set(AF_FAST_OBJECTS "")

# af_fast(isa without options...): `without` is a regular expression of files another one replaces.
function(af_fast isa without)
    set(sources ${AF_FAST_SOURCES})
    list(TRANSFORM sources REPLACE "^${CMAKE_SOURCE_DIR}/" "") # where the checkout is does not count
    list(FILTER sources EXCLUDE REGEX "${AF_FAST_ONCE}|${without}")
    add_library(af_fast_${isa} OBJECT ${sources})
    target_link_libraries(af_fast_${isa} PRIVATE af_flags)
    target_compile_definitions(af_fast_${isa} PRIVATE AF_ISA=${isa} AF_ISA_HEADER="cpu/isa/isa_${isa}.h")
    # no trapping maths is what makes these loops vectorise; results stay deterministic
    target_compile_options(af_fast_${isa} PRIVATE ${AF_LOOPS} -fno-trapping-math
        $<$<C_COMPILER_ID:GNU>:-fno-schedule-insns> ${ARGN})
    set_target_properties(af_fast_${isa} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    set(AF_FAST_OBJECTS ${AF_FAST_OBJECTS} $<TARGET_OBJECTS:af_fast_${isa}> PARENT_SCOPE)
endfunction()

set(AF_ONCE_SOURCES ${AF_FAST_SOURCES})
list(FILTER AF_ONCE_SOURCES INCLUDE REGEX "${AF_FAST_ONCE}")
list(APPEND AF_SOURCES ${AF_ONCE_SOURCES})

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    set(all_but_blocks "/(amx|neon|rows)/|/gemm/gemm_|/x86_pairs\\.c")
    set(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mprefer-vector-width=512)
    af_fast(sse2 "/amx/|/neon/|/x86/|/gemm_small\\.c")
    af_fast(avx2 "/amx/|/neon/|/x86_pairs\\.c|/gemm_blocks\\.c|/gemm_small\\.c" -mavx2 -mfma -mf16c)
    af_fast(avx2vnni ${all_but_blocks} -mavx2 -mfma -mf16c -mavxvnni) # avx2 has the rest of its table
    af_fast(avx512 "/amx/|/neon/|/x86_pairs\\.c|/gemm_blocks\\.c" ${avx512})
    af_fast(avx512vnni ${all_but_blocks} ${avx512} -mavx512vnni)
    af_fast(avx512bf16 "/amx/|/neon/|/gemm_blocks\\.c" ${avx512} -mavx512vnni -mavx512bf16)
    af_fast(amx "/neon/|/x86_pairs\\.c|/gemm_blocks\\.c" ${avx512} -mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    af_fast(neon "/amx/|/x86/|/gemm_tile\\.c|/neonbf16_|/neondot_")
    af_fast(neondot "/amx/|/x86/|/gemm_tile\\.c|/neonbf16_|/gemm_blocks\\.c" -march=armv8.2-a+dotprod)
    af_fast(neonbf16 "/amx/|/x86/|/gemm_tile\\.c|/neondot_|/gemm_blocks\\.c" -march=armv8.2-a+bf16+fp16+dotprod+i8mm)
else()
    af_fast(portable "/amx/|/neon/|/x86/|/gemm_small\\.c")
endif()

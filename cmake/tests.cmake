# tests/<layer>/test_*.c: one cmocka program each. tests/fuzz/fuzz_*.c: one libFuzzer entry each, replayed
# over its seed corpus in every build. tests/**/test_*.sh: run with the program's path in AFINAR.
find_path(AF_CMOCKA_INC cmocka.h)
find_library(AF_CMOCKA cmocka)
if(NOT AF_CMOCKA OR NOT AF_CMOCKA_INC)
    message(FATAL_ERROR "libcmocka is missing: run tools/install-deps")
endif()
set(AF_TEST_ENV "HF_HUB_OFFLINE=1;AF_GOLDEN=${CMAKE_SOURCE_DIR}/tests/golden;AF_SHARED=${CMAKE_SOURCE_DIR}/../shared;AFINAR=${CMAKE_BINARY_DIR}/afinar;AF_SOURCE=${CMAKE_SOURCE_DIR};AF_BUILD=${CMAKE_BINARY_DIR}")

# What every program is linked with: under AddressSanitizer, a cheap look whether anything can have leaked.
# A busy machine may be ten times slower than a quiet one, so limits of time only end what hangs.
set(AF_TEST_LIBS af_flags afinar_static)
if(AF_SANITIZE MATCHES address AND NOT AF_FUZZ AND NOT CMAKE_CROSSCOMPILING)
    set(AF_FIXED_ADDRESS -no-pie) # no start of a program moves the pointers of its tables
    add_library(af_leaks OBJECT ${CMAKE_SOURCE_DIR}/tests/leaks.c)
    target_link_libraries(af_leaks PRIVATE af_flags)
    list(APPEND AF_TEST_LIBS $<TARGET_OBJECTS:af_leaks>)
    target_link_libraries(afinar PRIVATE $<TARGET_OBJECTS:af_leaks>) # scripts start it hundreds of times
    target_link_options(afinar PRIVATE ${AF_FIXED_ADDRESS})
endif()

# Two hundred small programs that run once: they compile in a third of the time without optimization, and link in half the time
# with another linker where there is one. What they test is the library, which is built as for a user.
set(AF_TEST_OPTIONS -O0)
set(AF_TEST_LINK_OPTIONS "")
foreach(linker lld gold)
    find_program(AF_LINKER_${linker} ld.${linker})
    if(AF_LINKER_${linker} AND NOT AF_TEST_LINK_OPTIONS AND NOT AF_FUZZ AND NOT CMAKE_CROSSCOMPILING)
        set(AF_TEST_LINK_OPTIONS -fuse-ld=${linker})
        if(linker STREQUAL lld) # a fifth less of the processor: its threads wait for each other
            list(APPEND AF_TEST_LINK_OPTIONS -Wl,--threads=1)
        endif()
    endif()
endforeach()
list(APPEND AF_TEST_LINK_OPTIONS ${AF_FIXED_ADDRESS})

file(GLOB_RECURSE AF_TESTS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/test_*.c)
foreach(source ${AF_TESTS})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests ${AF_CMOCKA_INC})
    target_compile_options(${name} PRIVATE ${AF_TEST_OPTIONS})
    if(name MATCHES "^test_fast_") # their references are whole matrix products
        target_compile_options(${name} PRIVATE -O1)
    endif()
    target_link_libraries(${name} PRIVATE ${AF_TEST_LIBS} ${AF_CMOCKA})
    target_link_options(${name} PRIVATE ${AF_TEST_LINK_OPTIONS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${AF_TEST_ENV}" TIMEOUT 1800 SKIP_RETURN_CODE 77)
endforeach()
target_link_options(test_alloc_each PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
target_link_options(test_publish PRIVATE -Wl,--wrap=fsync,--wrap=rename,--wrap=renameat2)
# libyaml keeps its stacks when one of them cannot be made
set_property(TEST test_alloc_each APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
# Under the sanitizers `make test` leaves out what runs for long and reaches no code that others do not: whole runs whose
# numbers are compared, kernels on the host in further types, the device's own compiler, a process killed from outside. Such a
# program is neither built by default nor started (label long); `make check-asan` does both.
add_custom_target(long)
function(af_long name)
    if(AF_SANITIZE MATCHES address)
        set_property(TEST ${name} APPEND PROPERTY LABELS long)
        if(TARGET ${name})
            set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
            add_dependencies(long ${name})
        endif()
    endif()
endfunction()
af_long(test_cuda_kernels)
af_long(test_trajectories)
af_long(test_ranks_golden)
af_long(test_schema_limits)
af_long(test_fast_threads) # the kernels of test_fast_gemm, on more threads
af_long(test_data_golden)  # tokenizers and templates of others: their loading is that of test_tokenizer_golden

# every library of NVIDIA in one file, to be copied under their names (test_cuda_library.c, test_cli_doctor.sh)
add_library(fake_nvidia MODULE ${CMAKE_SOURCE_DIR}/tests/backend/fake_nvidia.c)
set_target_properties(fake_nvidia PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_dependencies(test_cuda_library fake_nvidia)

# Kernels on the host: the .cu texts with tests/backend/host/dev.cuh in place of the device's header.
include(CheckLanguage)
check_language(CXX)
if(AF_FUZZ OR AF_SANITIZE MATCHES thread) # other libraries of C++; coroutines
    message(STATUS "test_cuda_host (kernels on the host) is left out of this build")
elseif(NOT CMAKE_CXX_COMPILER)
    message(STATUS "no C++ compiler (Debian: g++): test_cuda_host, kernels on the host, is left out")
else()
    enable_language(CXX)
    function(af_host_kernels name source type vec)
        add_executable(${name} ${CMAKE_SOURCE_DIR}/tests/backend/${source}.cpp)
        target_compile_definitions(${name} PRIVATE AF_T=${type} AF_VEC=${vec})
        target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/backend/host ${CMAKE_SOURCE_DIR}/tests/backend
            ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/src/ops/common ${CMAKE_SOURCE_DIR}/src/ops/linear
            ${CMAKE_SOURCE_DIR}/src/ops/attention ${CMAKE_SOURCE_DIR}/src/ops/rope
            ${CMAKE_SOURCE_DIR}/src/backend/cuda ${CMAKE_SOURCE_DIR}/src/tensor ${CMAKE_SOURCE_DIR}/include)
        # a kernel has parameters that only others of its kind use, and pragmas of the device's compiler
        target_compile_options(${name} PRIVATE -O0 -g0 -Wall -Wextra -Wno-unused-parameter -Wno-unknown-pragmas -Wno-narrowing
            -ffp-contract=off)
        target_link_libraries(${name} PRIVATE afinar_static)
        set_target_properties(${name} PROPERTIES CXX_STANDARD 17 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
        add_test(NAME ${name} COMMAND ${name})
        # on aarch64 the search for leaks takes four seconds; these programs keep nothing
        set_tests_properties(${name} PROPERTIES ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0" TIMEOUT 1800)
    endfunction()
    af_host_kernels(test_cuda_host_float test_cuda_host float 1)
    af_host_kernels(test_cuda_host_bf16 test_cuda_host bf16 8)
    af_host_kernels(test_cuda_host_half test_cuda_host half 1)
    af_host_kernels(test_cuda_tensor test_cuda_tensor bf16 8)
    af_host_kernels(test_cuda_gemm_host test_cuda_gemm_host bf16 8)
    af_host_kernels(test_cuda_attention_host test_cuda_attention_host bf16 8)
    af_long(test_cuda_host_float)
    af_long(test_cuda_host_bf16)
    af_long(test_cuda_host_half)
    af_long(test_cuda_gemm_host)
    af_long(test_cuda_attention_host)
endif()

file(GLOB AF_FUZZERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_*.c)
if(NOT AF_REPLAY)
    set(AF_FUZZERS "")
endif()
foreach(source ${AF_FUZZERS})
    get_filename_component(name ${source} NAME_WE)
    if(AF_FUZZ)
        add_executable(${name} ${source})
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    else()
        add_executable(${name} ${source} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay.c)
        add_test(NAME ${name} COMMAND ${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/${name})
        set_tests_properties(${name} PROPERTIES ENVIRONMENT "${AF_TEST_ENV}" TIMEOUT 1800)
    endif()
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(${name} PRIVATE ${AF_TEST_LIBS})
    target_link_options(${name} PRIVATE ${AF_TEST_LINK_OPTIONS})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endforeach()

# Preloaded by the fault tests: lets the n-th allocation or file call fail.
add_library(af_inject MODULE ${CMAKE_SOURCE_DIR}/tests/faults/inject.c ${CMAKE_SOURCE_DIR}/tests/faults/inject_fork.c)
target_link_libraries(af_inject PRIVATE ${CMAKE_DL_LIBS})
target_compile_options(af_inject PRIVATE -Wall -Wextra -fno-builtin -fno-sanitize=all)
set_target_properties(af_inject PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

# Scripts start the program hundreds of times, and a search for leaks takes four seconds on aarch64: leaks are looked for by
# the test programs alone.
set(AF_SCRIPT_ENV "${AF_TEST_ENV}")
if(AF_SANITIZE MATCHES address)
    list(APPEND AF_SCRIPT_ENV "ASAN_OPTIONS=detect_leaks=0")
endif()
file(GLOB_RECURSE AF_SCRIPTS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/test_*.sh)
foreach(script ${AF_SCRIPTS})
    get_filename_component(name ${script} NAME_WE)
    add_test(NAME ${name} COMMAND bash ${script})
    # scripts of the program run under the sanitizers too; those of sources, documents and installation once
    set(label script)
    if(name MATCHES "^test_cli_" AND NOT name MATCHES "_(install|demo|examples|bench)$")
        set(label program)
    endif()
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${AF_SCRIPT_ENV}" LABELS ${label} TIMEOUT 1800
        SKIP_RETURN_CODE 77)
endforeach()
# The longest begin first, so that no core waits for one of them at the end; test_comm_tcp and test_cli_hub wait themselves.
foreach(name test_cuda_kernels test_cli_train_features test_cli_outputs test_cli_limits test_fit test_cli_ranks test_methods
             test_fast_attention test_fast_gemm test_cuda_host_bf16 test_cli_usage test_comm_tcp test_cli_hub test_cli_kill
             test_faults_alloc test_faults_io test_cuda_ops test_cli_train_errors test_pref_runs test_stored_4bit test_data_golden
             test_tokenizer test_fast_rows test_trajectories test_cli_convert test_lm_grad test_cli_hints test_cli_ranks_kill
             test_export_families test_cli_new_tokens test_cli_serve test_cli_serve_messages test_cli_signals test_cli_trackers)
    if(TEST ${name}) # the kernels on the host want a C++ compiler
        set_tests_properties(${name} PROPERTIES COST 100)
    endif()
endforeach()
af_long(test_cli_train_features)
af_long(test_cli_kill)
af_long(test_cli_ranks) # test_comm_tcp, test_cli_ranks_kill and test_cli_ranks_mpi reach the same code
af_long(test_cli_doctor) # its time is that of three measured GEMMs

# Switches and flags. Presets (CMakePresets.json) set them; nothing else does.
option(AF_BUILD_TESTS "build the tests" ON)
option(AF_BUILD_SHARED "build libafinar.so" ON)
option(AF_STATIC_LIBS "link the small libraries statically into the program" ON)
option(AF_FUZZ "build the fuzz entries with libFuzzer (clang)" OFF)
option(AF_REPLAY "build the programs that replay the seeds of the fuzz entries" ON)
set(AF_SANITIZE "" CACHE STRING "sanitizers, as given to -fsanitize=")
option(AF_UB_MESSAGES "undefined behaviour is named, in place of a trap at its line" OFF)
option(AF_COVERAGE "count covered lines" OFF)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Asserts stay on in every build type.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_C_FLAGS_RELEASE "-O2")
set(AF_LOOPS -O3) # for files that are loops over numbers and little else
if(AF_SANITIZE MATCHES "address|thread" AND NOT AF_FUZZ)
    # The tests, once: they compile in a third of the time, and run hardly slower.
    set(CMAKE_C_FLAGS_RELWITHDEBINFO "-Og -g1")
    set(AF_LOOPS -O1)
endif()

add_library(af_flags INTERFACE)
target_include_directories(af_flags INTERFACE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src
                                              ${CMAKE_BINARY_DIR}/generated)
target_compile_definitions(af_flags INTERFACE AF_VERSION="${PROJECT_VERSION}" _POSIX_C_SOURCE=200809L)
# No contraction: the same C gives the same bits on every machine. src/cpu opts out.
target_compile_options(af_flags INTERFACE -Wall -Wextra -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wpointer-arith -Wvla -ffp-contract=off -fno-math-errno -fvisibility=hidden)
# No path of this machine in what is built: the same bytes wherever the tree lies (tools/check-reproducible).
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=build)
endif()
if(AF_SANITIZE)
    add_compile_options(-fsanitize=${AF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${AF_SANITIZE})
    # A call of UBSan's messages costs a record with its place, which ASan guards like any variable: two thirds of an object file.
    # A trap ends the program at the same places, and ASan prints the line (tests/leaks.c). -DAF_UB_MESSAGES=ON: with kind and values.
    if(AF_SANITIZE MATCHES undefined AND NOT AF_FUZZ AND NOT AF_UB_MESSAGES)
        add_compile_options(-fsanitize-undefined-trap-on-error)
    endif()
endif()
if(AF_COVERAGE)
    # -O1: lines are counted nearly as well as without, and the tests end four times as soon
    add_compile_options(--coverage -O1)
    set(AF_LOOPS -O1)
    add_link_options(--coverage)
endif()

# A short front door. The build itself is CMake (CMakePresets.json names the variants).
.PHONY: all deps demo test check check-asan check-kernels check-threads check-faults check-hub check-ranks check-serve-load check-mutants coverage docs install package check-reproducible clean
all: deps
	@cmake --preset release >/dev/null
	@cmake --build build --target product

# Installs what is missing on Debian and Ubuntu; says what it does; does nothing when all is there.
deps:
	@tools/install-deps

demo: all
	@examples/demo/run.sh

test: deps
	@tools/run-tests

check: deps
	@tools/check

# Every test program and every script of the program under AddressSanitizer and UBSan, also those make test leaves out there
check-asan: deps
	@tools/run-tests sanitized

# Every variant of every CUDA kernel for all six architectures (make test: every define and what ordinary runs ask for, for one
# of three), all optimized machine code of a package with it
check-kernels: deps
	@cmake --preset release -DAF_CUBINS=common >/dev/null
	@cmake --build build --target test_cuda_kernels
	@AF_ALL_ARCHS=1 ctest --test-dir build --output-on-failure -R '^test_cuda_kernels$$'

# The threaded parts under ThreadSanitizer: pool, kernels on several threads, token stream, saver, tokenizers, decoder, ranks over
# TCP (each a process with a thread that watches the others), parts of a download; then whole runs, the server with many
# clients, a run that is served, and downloads, by the program itself.
THREADED = comm_tcp pool memory file map_watch token_cache fast_threads rows_alone batch_stream run_object run_from_c judged \
    generate imatrix quantize merge_golden status decoder decode_shared tokenizer hub_parts hub_ask \
    http_server served_run
THREADED_SCRIPTS = cli_serve cli_serve_attacks cli_serve_run cli_hub cli_ranks
check-threads: deps
	@cmake --preset tsan >/dev/null
	@cmake --build build/tsan --target afinar $(THREADED:%=test_%)
	@ctest --test-dir build/tsan --output-on-failure -j 2 -R "^test_($$(echo $(THREADED) $(THREADED_SCRIPTS) | tr ' ' '|'))$$"

# Plants the errors of tools/mutants.txt one by one: at least 90 % must make a test fail.
check-mutants: deps
	@tools/mutants

# Which lines the tests reach, per folder: docs/coverage.md.
coverage: deps
	@tools/coverage

# Writes docs/keys.md, the man pages and the completions again, after a change of an option or a key.
docs: all
	@tools/gen-docs

# make install PREFIX=/somewhere; without it: /usr/local
install: all
	@cmake --install build $(if $(PREFIX),--prefix "$(PREFIX)")

# A .deb, a tarball and a Python wheel in build/packages, with GPU machine code (needs NVRTC; else AF_CUBINS=none)
package: deps
	@tools/package

# Builds everything twice in two places and compares the bytes
check-reproducible: deps
	@tools/check-reproducible

# Allocations and file calls of every command fail, each once and with all later ones: two of every call stack
# (AF_FAULT_ALL=1: all, hours)
check-faults: deps
	@cmake --preset release >/dev/null
	@cmake --build build --target afinar af_inject
	@tests/faults/sweep.sh

# kill -9 at 50 random moments of a download; the cache must be that of an undisturbed one
check-hub: deps
	@cmake --preset release >/dev/null
	@cmake --build build --target afinar
	@AFINAR=build/afinar tests/hub/test_cli_hub.sh kills 50

# Every method x packing x accumulation x optimizer x stage with 2 and 4 ranks: the bytes of one process
# then kill -9 of a random rank at 20 random moments: the others end and name it, the resumed run has the same bytes
check-ranks: deps
	@cmake --preset release >/dev/null
	@cmake --build build --target afinar test_comm_tcp
	@AFINAR=$(CURDIR)/build/afinar AF_GOLDEN=$(CURDIR)/tests/golden AF_RANKS=all AF_STAGES="0 1 2 3" bash tests/dist/test_cli_ranks.sh
	@build/tests/test_comm_tcp kills 20
	@AFINAR=$(CURDIR)/build/afinar AF_GOLDEN=$(CURDIR)/tests/golden AF_KILLS=20 bash tests/dist/test_cli_ranks_kill.sh
	@AFINAR=$(CURDIR)/build/afinar AF_GOLDEN=$(CURDIR)/tests/golden AF_KILLS=20 AF_KILL_STAGE=3 bash tests/dist/test_cli_ranks_kill.sh

# An hour of mixed load on a server (SECONDS=600: ten minutes): its memory must be flat. The log: build/serve-load.log
SECONDS ?= 3600
check-serve-load: deps
	@cmake --preset release >/dev/null
	@cmake --build build --target afinar
	@AFINAR=$(CURDIR)/build/afinar AF_GOLDEN=$(CURDIR)/tests/golden nice -n 15 python3 tests/serve/serve_load.py $(SECONDS) build/serve-load.log
	@tail -n 1 build/serve-load.log

clean:
	rm -rf build

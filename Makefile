# A short front door. The build itself is CMake (CMakePresets.json names the variants).
.PHONY: all deps demo test check docs install package check-reproducible clean
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

clean:
	rm -rf build

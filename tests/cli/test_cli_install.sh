#!/usr/bin/env bash
# What `make install` installs is enough for other projects: a program builds against it with CMake and with plain flags,
# with the shared library and with the static one, and the shared library exports only af_ names.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cmake --install "$AF_BUILD" --prefix "$tmp/usr" >/dev/null
export LD_LIBRARY_PATH=$tmp/usr/lib PKG_CONFIG_PATH=$tmp/usr/lib/pkgconfig

strange=$(nm -D --defined-only "$tmp/usr/lib/libafinar.so" | awk '$3 !~ /^af_/ { print $3 }')
[ -z "$strange" ] || { echo "libafinar.so exports $strange"; exit 1; }

mkdir "$tmp/use"
cp "$AF_SOURCE/examples/linear_regression.c" "$tmp/use/use.c"
cat > "$tmp/use/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(use C)
find_package(afinar REQUIRED)
add_executable(use use.c)
target_link_libraries(use afinar::afinar m)
add_executable(use_static use.c)
target_link_libraries(use_static afinar::afinar_static)
END
cmake -S "$tmp/use" -B "$tmp/use/build" -DCMAKE_PREFIX_PATH="$tmp/usr" >/dev/null
cmake --build "$tmp/use/build" >/dev/null
"$tmp/use/build/use" | grep -q "loss 0.00"
"$tmp/use/build/use_static" | grep -q "loss 0.00"
! readelf -d "$tmp/use/build/use_static" | grep -q libafinar || { echo "afinar::afinar_static links the shared library"; exit 1; }

cc "$tmp/use/use.c" -I"$tmp/usr/include" -L"$tmp/usr/lib" -lafinar -lm -o "$tmp/use/plain"
"$tmp/use/plain" | grep -q "loss 0.00"
# a program that trains needs nothing but the exported names
cc "$AF_SOURCE/examples/finetune.c" -I"$tmp/usr/include" -L"$tmp/usr/lib" -lafinar -lm -o "$tmp/use/finetune"
if "$tmp/use/finetune" "$tmp/absent" "$tmp/absent.jsonl" "$tmp/out" 2>"$tmp/why"; then echo "a missing model trains"; exit 1; fi
grep -q "^finetune: " "$tmp/why"
if command -v pkg-config > /dev/null; then # the flags refer to the installed location
    eval cc "$tmp/use/use.c" $(pkg-config --cflags --libs afinar) -lm -o "$tmp/use/found"
    "$tmp/use/found" | grep -q "loss 0.00"
    eval cc "$tmp/use/use.c" $(pkg-config --cflags afinar) "$tmp/usr/lib/libafinar.a" \
        $(pkg-config --static --libs-only-l afinar | sed 's/-lafinar//') -o "$tmp/use/archive"
    "$tmp/use/archive" | grep -q "loss 0.00"
fi
grep -q "Libs: -L\${libdir} -lafinar" "$tmp/usr/lib/pkgconfig/afinar.pc"
"$tmp/usr/bin/afinar" --version | grep -q afinar
for file in man/man1/afinar.1 man/man1/afinar-train.1 bash-completion/completions/afinar zsh/site-functions/_afinar \
            fish/vendor_completions.d/afinar.fish; do
    [ -s "$tmp/usr/share/$file" ] || { echo "share/$file is not installed"; exit 1; }
done
echo "installed, linked with CMake and with plain flags, shared and static, af_ names only"

#!/usr/bin/env bash
# The public headers: each compiles alone as C17 and as C++17 without warnings, every function is documented, and
# libafinar.so exports exactly the functions they declare. No object needs a function that depends on the locale.
set -uo pipefail
bad=0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
flags=(-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$AF_SOURCE/include")
cc=${CC:-cc} cxx=${CXX:-c++}
for header in "$AF_SOURCE"/include/afinar/*.h; do
    name=$(basename "$header")
    printf '#include "afinar/%s"\n#include "afinar/%s"\nint main(void) { return 0; }\n' "$name" "$name" >"$tmp/x.c"
    "$cc" -std=c17 "${flags[@]}" "$tmp/x.c" || { echo "FAILED: $name as C17"; bad=1; }
    if command -v "$cxx" >/dev/null; then
        "$cxx" -std=c++17 -x c++ "${flags[@]}" "$tmp/x.c" || { echo "FAILED: $name as C++17"; bad=1; }
    fi
done
command -v "$cxx" >/dev/null || echo "no C++ compiler: headers were not compiled as C++17"
library=()
[ -f "$AF_BUILD/libafinar.so" ] && ! nm "$AF_BUILD/libafinar.so" | grep -q '__asan_init\|__gcov_init' &&
    library=(--library "$AF_BUILD/libafinar.so")
python3 "$AF_SOURCE/tools/check-headers" "${library[@]}" || bad=1
# what depends on the locale of the program is called through base.h alone
found=$(nm -A "$AF_BUILD/libafinar.a" 2>/dev/null | grep -E ' U (__)?(v?snprintf|strtod|strn?casecmp|strcasestr)(_chk)?$' | grep -v ':libc\.c\.o:')
[ -z "$found" ] || { echo "FAILED: not of base.h:"; echo "$found"; bad=1; }
soname=$(objdump -p "$AF_BUILD/libafinar.so" 2>/dev/null | awk '$1 == "SONAME" { print $2 }')
version=$("$AFINAR" --version | awk '{ print $2 }')
[ -z "$soname" ] || [ "$soname" = "libafinar.so.${version%.*}" ] || { echo "FAILED: SONAME is $soname, version $version"; bad=1; }
exit $bad

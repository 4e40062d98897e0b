#!/usr/bin/env bash
# tools/skipped-tests counts the skipped cases of a run by their reason and leaves ctest's summary line last.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/Testing/Temporary"
cat > "$tmp/Testing/Temporary/LastTest.log" <<'END'
1/3 Testing: test_a
Output:
----------------------------------------------------------
[ RUN      ] test_one
SKIP: no GPU
[  SKIPPED ] test_one
[ RUN      ] test_two
SKIP: no GPU
[  SKIPPED ] test_two
<end of output>
2/3 Testing: test_b
Output:
----------------------------------------------------------
there is no fish here
<end of output>
3/3 Testing: test_c
Output:
----------------------------------------------------------
all well
<end of output>
END
cat > "$tmp/ctest" <<'END'
1/3 Test #1: test_a .................   Passed    0.00 sec
2/3 Test #2: test_b .................***Skipped   0.00 sec
3/3 Test #3: test_c .................   Passed    0.00 sec

100% tests passed, 0 tests failed out of 3

Total Test time (real) =  12.98 sec
END
"$AF_SOURCE/tools/skipped-tests" "$tmp" < "$tmp/ctest" > "$tmp/out"
cat "$tmp/out"
grep -qx 'skipped cases: 3' "$tmp/out"
grep -qx ' *2  no GPU: test_a' "$tmp/out"
grep -qx ' *1  there is no fish here: test_b' "$tmp/out"
[ "$(tail -n 1 "$tmp/out")" = "100% tests passed, 0 tests failed out of 3" ]
if head -n 3 "$tmp/ctest" | "$AF_SOURCE/tools/skipped-tests" "$tmp" > "$tmp/out"; then
    echo "a run without a summary must fail"
    exit 1
fi

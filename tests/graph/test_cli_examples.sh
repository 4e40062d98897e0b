#!/usr/bin/env bash
# The examples run for a few steps; the small ones also to the end, where they check their result.
set -euo pipefail
build=${AF_BUILD:-build}

run() { echo "+ $*"; "$build/$@"; }

run example_linear_regression 5
run example_linear_regression | tee "${TMPDIR:-/tmp}/linear.$$"
trap 'rm -f "${TMPDIR:-/tmp}/linear.$$"' EXIT
grep -Eq '^y = (3\.0|2\.99).* a \+ -(2\.0|1\.99).* b' "${TMPDIR:-/tmp}/linear.$$"
run example_mlp_classifier 5
run example_mlp_classifier
if [ -x "$build/example_char_transformer" ]; then
    run example_char_transformer 3
fi

#!/usr/bin/env bash
# Every #include obeys the layer table; and the checker itself sees a planted fault.
set -euo pipefail
python3 "$AF_SOURCE/tools/check-layers" "$AF_SOURCE"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/src/base"
echo '#include "graph/graph.h"' > "$tmp/src/base/wrong.c"
if python3 "$AF_SOURCE/tools/check-layers" "$tmp"; then
    echo "the checker missed a planted fault"
    exit 1
fi

#!/usr/bin/env bash
# The tree keeps the source rules (tools/check --quick: layers, folder cycles and sizes, unique names, lengths of lines, files
# and functions, no decision on the text of a message), and the checks see planted faults.
set -euo pipefail
"$AF_SOURCE/tools/check" --quick
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/src/base" "$tmp/src/format/a" "$tmp/src/format/b"
fails() { # fails WHAT: tools/check --quick reports it
    if AF_ROOT=$tmp "$AF_SOURCE/tools/check" --quick > "$tmp/out" || ! grep -q "^FAILED  $1" "$tmp/out"; then
        cat "$tmp/out"
        echo "tools/check missed a planted fault: $1"
        exit 1
    fi
}
echo '#include "graph/graph.h"' > "$tmp/src/base/wrong.c"
fails layers
echo '#include "format/b/y.h"' > "$tmp/src/format/a/x.h"
echo '#include "format/a/x.h"' > "$tmp/src/format/b/y.h"
rm "$tmp/src/base/wrong.c"
fails layers
echo 'typedef struct af_thing {' > "$tmp/src/format/a/x.h"
echo 'typedef void af_thing(int n);' > "$tmp/src/format/b/y.h"
fails layers
rm "$tmp/src/format/b/y.h" "$tmp/src/format/a/x.h"
printf '/* %0101d */\n' 0 > "$tmp/src/base/wide.c"
fails "lines"
echo 'if (strstr(err->msg, "no template")) return;' > "$tmp/src/base/wide.c"
fails "no decision"
seq 601 > "$tmp/src/base/wide.c"
fails "files"
{ echo "{"; seq 60; echo "}"; } > "$tmp/src/base/wide.c"
fails "functions"
rm "$tmp/src/base/wide.c"
echo "planted faults are seen"

#!/usr/bin/env bash
# Every relative link of the documentation leads to a file, and every decision record is in the index.
set -euo pipefail
cd "$AF_SOURCE"
bad=0
pages=$(find README.md CONTRIBUTING.md CHANGELOG.md docs examples tests/golden/README.md -name '*.md')
for page in $pages; do
    folder=$(dirname "$page")
    for link in $(grep -oE '\]\([^)# ]+' "$page" | cut -c3- | grep -v '^[a-z]*:' || true); do
        [ -e "$folder/$link" ] || { echo "$page: no $link"; bad=1; }
    done
done
for record in docs/decisions/[0-9]*.md; do
    grep -q "$(basename "$record")" docs/decisions/README.md || { echo "docs/decisions/README.md: no $(basename "$record")"; bad=1; }
done
[ $bad = 0 ] && echo "every link of the documentation leads somewhere"
exit $bad

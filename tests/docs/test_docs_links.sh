#!/usr/bin/env bash
# Every relative link of the documentation leads to a file and, after #, to a heading of it; every decision record is in the index.
set -euo pipefail
cd "$AF_SOURCE"
bad=0
pages=$(find README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md docs examples tests/golden/README.md -name '*.md')
# the names that a page's headings have in links: lower case, - for blanks, without links and punctuation
headings() {
    grep -E '^#+ ' "$1" | sed -E 's/^#+ //; s/\[([^]]*)\]\([^)]*\)/\1/g' | tr '[:upper:] ' '[:lower:]-' | tr -cd 'a-z0-9_\n-'
}
for page in $pages; do
    folder=$(dirname "$page")
    for link in $(grep -oE '\]\([^)# ]+' "$page" | cut -c3- | grep -v '^[a-z]*:' || true); do
        [ -e "$folder/$link" ] || { echo "$page: no $link"; bad=1; }
    done
    for link in $(grep -oE '\]\([^)# ]*#[^) ]+' "$page" | cut -c3- | grep -v '^[a-z]*:' || true); do
        to=${link%%#*}
        to=${to:+$folder/$to}
        to=${to:-$page}
        [ ! -e "$to" ] || grep -qFx "${link#*#}" <(headings "$to") || { echo "$page: no heading for $link"; bad=1; }
    done
done
for record in docs/decisions/[0-9]*.md; do
    grep -q "$(basename "$record")" docs/decisions/README.md || { echo "docs/decisions/README.md: no $(basename "$record")"; bad=1; }
done
[ $bad = 0 ] && echo "every link of the documentation leads somewhere"
exit $bad

#!/usr/bin/env bash
# Every relative link of the documentation leads to a file, and the files that the guides name are there.
set -euo pipefail
cd "$AF_SOURCE"
bad=0
pages=$(find README.md CONTRIBUTING.md CHANGELOG.md docs examples tests/golden/README.md -name '*.md')
for page in $pages; do
    folder=$(dirname "$page")
    for link in $(grep -oE '\]\([^)# ]+' "$page" | cut -c3- | grep -v '^[a-z]*:' || true); do
        [ -e "$folder/$link" ] || { echo "$page: no $link"; bad=1; }
    done
    case $page in docs/guide/* | docs/extending.md | docs/architecture.md | CONTRIBUTING.md) ;; *) continue ;; esac
    for file in $(grep -oE '`(src|cli|include|cmake|tools|tests|docs|examples|man)/[A-Za-z0-9_./-]+\.(c|h|cu|cuh|sh|py|md|txt|def)`' "$page" | tr -d '`'); do
        [[ $file == *[A-Z][A-Z]* || $file == */foo* || -e $file ]] || { echo "$page: no $file"; bad=1; }
    done
done
[ $bad = 0 ] && echo "every link and file name in the documentation leads somewhere"
exit $bad

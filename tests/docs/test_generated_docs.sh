#!/usr/bin/env bash
# docs/keys.md, the man pages and the completions are what tools/gen-docs makes of this program.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 "$AF_SOURCE/tools/gen-docs" --program "$AFINAR" --out "$tmp"
bad=0
for file in docs/keys.md man completions; do
    diff -r -x notes "$AF_SOURCE/$file" "$tmp/$file" || bad=1
done
[ $bad = 0 ] || { echo "stale: run tools/gen-docs and commit what it writes"; exit 1; }
[ "$(ls "$tmp"/man/afinar-*.1 | wc -l)" -eq "$("$AFINAR" --help | grep -cE '^  [a-z]+ {2,}')" ] || { echo "a man page per command"; exit 1; }
# the check sees a change
printf 'x' >> "$tmp/man/afinar.1"
! diff -q "$AF_SOURCE/man/afinar.1" "$tmp/man/afinar.1" > /dev/null
echo "generated documentation is up to date"

#!/usr/bin/env bash
# docs/lessons.md names a test against each mistake: every file and every case it names must be there.
set -euo pipefail
page=$AF_SOURCE/docs/lessons.md
missing=0
for file in $(grep -o '\btest_[a-z0-9_]*' "$page" | sort -u); do
    find "$AF_SOURCE/tests" -name "$file.c" -o -name "$file.sh" | grep -q . || { echo "no $file"; missing=1; }
done
for name in $(grep '^|' "$page" | grep -o '`[a-z0-9]*_[a-z0-9_]*`' | tr -d '`' | sort -u); do
    grep -rqw -e "test_$name" --include='*.c' "$AF_SOURCE/tests" || { echo "no case $name"; missing=1; }
done
[ $missing = 0 ] && echo "every test that docs/lessons.md names is there"

#!/usr/bin/env bash
# tests/golden/README.md names every folder with its generator, and every script it names is there.
set -euo pipefail
cd "$AF_SOURCE/tests/golden"
bad=0
for folder in */; do
    grep -qE "^\| .*\`$folder[^\`]*\`.* \| [^|]+ \|\$" README.md || { echo "tests/golden/README.md has no row for $folder"; bad=1; }
done
while IFS= read -r row; do
    generator=${row%|}
    generator=${generator##*|}
    scripts=$(grep -oE '[A-Za-z0-9_./]+\.(py|c)\b' <<<"$generator") || { echo "no generator: $row"; bad=1; continue; }
    for script in $scripts; do
        [[ $generator == *"shared: "* && $script != tools/* ]] && continue
        [ -e "$script" ] || [ -e "$AF_SOURCE/$script" ] || { echo "no $script: $row"; bad=1; }
    done
done < <(grep '^| `' README.md)
[ $bad = 0 ] && echo "every golden folder has a generator"
exit $bad

#!/usr/bin/env bash
# The bash completion offers commands, options, keys and values; the other two parse where their shells are installed.
set -euo pipefail
cd "$AF_SOURCE/completions"
! command -v zsh > /dev/null || zsh -n _afinar
! command -v fish > /dev/null || fish -n afinar.fish
. ./afinar.bash
compopt() { :; } # only allowed inside of a real completion
complete -p afinar > /dev/null
offers() { # offers WORD LINE...: completing the last word of the line gives WORD (among others)
    local want=$1
    shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _afinar || true
    grep -qxF -- "$want" <<< "$(printf '%s\n' "${COMPREPLY[@]}")" || { echo "'$*' offers '${COMPREPLY[*]}', not $want"; exit 1; }
}
offers train afinar tr
offers export afinar help ex
offers --threads afinar train --th
offers cuda afinar train --device ''
offers 7b afinar bench --shape ''
offers dare_ties afinar merge --combine da
offers preview afinar data ''
offers records afinar data rec
offers capture afinar distill ''
offers cls afinar serve --pooling ''
offers cosine afinar train run.yaml lr_scheduler = co
types=$("$AFINAR" quantize x -o y --type nothing 2>&1 | sed 's/.*the types are //') || true
for type in $types; do offers "$type" afinar quantize --type ''; done
offers lora_r= afinar train run.yaml lora
offers qlora afinar train run.yaml adapter = q
offers true afinar plan run.yaml sample_packing =
offers afinar.fish afinar plan afinar.f
echo "completions load and complete"

#!/usr/bin/env bash
# All faults (make check-faults): two calls of every call stack, AF_FAULT_ALL=1: every single call. Arguments go to sweep.py: "alloc --case train_lora --at 17".
here=$(cd "$(dirname "$0")" && pwd)
build=${AF_BUILD:-$here/../../build}
export AFINAR=${AFINAR:-$build/afinar} AF_INJECT=${AF_INJECT:-$build/tests/af_inject.so} AF_GOLDEN=${AF_GOLDEN:-$here/../golden}
AF_GOLDEN=$(cd "$AF_GOLDEN" && pwd)
export PYTHONDONTWRITEBYTECODE=1
[ $# -gt 0 ] && exec python3 "$here/sweep.py" "$@"
status=0
for kind in alloc thread io; do
    if [ "${AF_FAULT_ALL:-}" = 1 ]; then
        python3 "$here/sweep.py" $kind || status=1
    else
        python3 "$here/sweep.py" $kind --stacks 2 || status=1
    fi
done
exit $status

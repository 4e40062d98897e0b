#!/usr/bin/env bash
# The commands, options, keys and dataset records that the documentation shows are those of the program.
set -euo pipefail
python3 "$AF_SOURCE/tests/docs/check_guide.py" "$AFINAR" "$AF_SOURCE"

#!/usr/bin/env bash
# `afinar train --serve`: endpoints of a run, and the same bytes with and without it.
exec python3 "$AF_SOURCE/tests/serve/serve_run.py"

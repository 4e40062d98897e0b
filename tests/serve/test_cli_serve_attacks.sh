#!/usr/bin/env bash
# Slow, many, large and malformed requests to `afinar serve`.
exec python3 "$AF_SOURCE/tests/serve/serve_attacks.py"

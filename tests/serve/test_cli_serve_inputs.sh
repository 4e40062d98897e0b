#!/usr/bin/env bash
# Texts, tokens and documents of requests: what is read of them, and what is refused.
exec python3 "$AF_SOURCE/tests/serve/serve_inputs.py"

#!/usr/bin/env bash
# Every endpoint, field and error of `afinar serve`.
exec python3 "$AF_SOURCE/tests/serve/serve_client.py"

#!/usr/bin/env bash
# /v1/responses: items, events, stored answers.
exec python3 "$AF_SOURCE/tests/serve/serve_responses.py"

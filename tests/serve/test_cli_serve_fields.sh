#!/usr/bin/env bash
# Fields of requests that OpenAI's API does not have.
exec python3 "$AF_SOURCE/tests/serve/serve_fields.py"

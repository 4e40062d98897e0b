#!/usr/bin/env bash
# /v1/messages: blocks, events, tools, errors.
exec python3 "$AF_SOURCE/tests/serve/serve_messages.py"

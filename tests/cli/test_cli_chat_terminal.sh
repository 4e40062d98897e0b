#!/usr/bin/env bash
# `afinar chat` in a terminal.
exec python3 "$AF_SOURCE/tests/cli/chat_terminal.py"

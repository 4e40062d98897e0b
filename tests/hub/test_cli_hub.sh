#!/usr/bin/env bash
# afinar pull and push against a hub on the loopback address: layout, faults, kills, uploads (hub_check.py).
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME="$tmp/cache"
unset HF_HUB_OFFLINE HF_TOKEN HF_HUB_CACHE
if ! python3 -c 'import ctypes; ctypes.CDLL("libcurl.so.4")' 2> /dev/null && ! python3 -c 'import ctypes; ctypes.CDLL("libcurl-gnutls.so.4")' 2> /dev/null; then
    echo "SKIP: libcurl is not installed"
    exit 77
fi
python3 "$here/hub_check.py" "$@"

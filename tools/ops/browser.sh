#!/bin/sh
# Swagger UI at /docs, tried in Chromium (Debian's package). Installs it if it is missing; half a minute.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v chromium >/dev/null; then
    if ! { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q \
        && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium; }; then
        echo "expected chromium; install it" >&2
        exit 1
    fi
fi
make --silent .venv/.ops
chromium=$(command -v chromium)  # the test is skipped without one
echo "$chromium: $("$chromium" --version 2>/dev/null)"
.venv/bin/python -m pytest -q tests/api/test_docs_page.py

#!/bin/sh
# Test Swagger UI at /docs, pages of other origins, the console and the documentation site in Chromium, which is installed from Debian if missing.
set -eu
cd "$(dirname "$0")/../.."
if ! command -v chromium >/dev/null; then
    if ! { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q \
        && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium; }; then
        echo "chromium not found; install it with: sudo apt-get install chromium" >&2
        exit 1
    fi
fi
make --silent .venv/.ops docs
chromium=$(command -v chromium)  # without it the test would be skipped
echo "$chromium: $("$chromium" --version 2>/dev/null)"
.venv/bin/python -m pytest -q tests/api/test_docs_page.py tests/api/test_browsers.py tools/ops/test_site.py \
    tests/api/test_beacon_script.py tools/ops/test_example.py tools/ops/test_console_*.py

#!/bin/sh
# Create a virtual environment with pip on a machine that has only Python.
set -eu
venv=$1

fits() { command -v "$1" >/dev/null && "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; }

python=
for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
    if [ -n "$candidate" ] && fits "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    echo "expected Python 3.11 or newer, got: $(python3 --version 2>&1 || echo none);" \
        "install it, or pass its path: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi

# Debian has venv's pip in a separate package.
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    package=$("$python" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')
    if ! { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null \
        && apt-get update -q && apt-get install -qy --no-install-recommends "$package"; }; then
        echo "Python has no ensurepip; install it with: sudo apt-get install $package" >&2
        exit 1
    fi
fi
"$python" -m venv "$venv"

#!/bin/sh
# Run the procedures of docs/operations.md on real servers: ACL, backup, restore, keys. Takes a minute.
set -eu
cd "$(dirname "$0")/../.."
make --silent .venv/.ops
.venv/bin/python -m pytest -q tools/ops/test_operations.py

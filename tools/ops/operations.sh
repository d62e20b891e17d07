#!/bin/sh
# What docs/operations.md says was tried: an ACL, backups, restores, keys, on real servers; a minute.
set -eu
cd "$(dirname "$0")/../.."
make --silent .venv/.ops
.venv/bin/python -m pytest -q tools/ops/test_operations.py

#!/bin/sh
# Run `make soak` for three minutes with every fault, then check its report. Takes four minutes and a C compiler.
set -eu
cd "$(dirname "$0")/../.."
make --silent .venv/.ops
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
.venv/bin/python -m tests.soak --hours 0.05 --dir "$folder"
test -s "$folder"/run-1/report.svg

#!/bin/sh
# Resolve the requirement files again, with hashes and for every platform. Each layer builds on the one before.
set -eu
uv=$1
lock() { "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --upgrade "$@"; }

echo 'flit_core>=3.12,<4' | lock - -o requirements/build.txt
lock pyproject.toml -o requirements/run.txt
lock pyproject.toml --extra cluster -c requirements/run.txt -o requirements/cluster.txt
lock pyproject.toml --extra plot --extra otel --extra compare --extra cluster --extra dev -c requirements/run.txt -o requirements/dev.txt
lock pyproject.toml --extra plot --extra otel --extra compare --extra cluster --extra dev --extra ops -c requirements/dev.txt -o requirements/ops.txt
lock pyproject.toml --extra plot --extra otel --extra compare --extra cluster --extra dev --extra docs -c requirements/dev.txt -o requirements/docs.txt
lock pyproject.toml --extra plot --extra otel --extra compare --extra cluster --extra dev --extra bench -c requirements/dev.txt -o requirements/bench.txt

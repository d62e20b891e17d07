#!/bin/sh
# Check dashboards, alerts and the page of metrics with promtool and Prometheus (Debian's package) and with
# Grafana's schema (from npm). Installs missing tools. Takes half a minute to three minutes.
set -eu
cd "$(dirname "$0")/../.."

missing=
for pair in promtool:prometheus prometheus:prometheus node:nodejs npm:npm; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ]; then
    if ! { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -q \
        && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $missing; }; then
        echo "expected promtool, prometheus, node and npm; install the packages:$missing" >&2
        exit 1
    fi
fi
make --silent .venv/.ops

echo '== rules'
promtool check rules docker/prometheus/rules.yml
promtool test rules tests/ops/rules_test.yml tests/ops/rules_week_test.yml

echo "== dashboards against Grafana's schema"
schema=tools/ops/grafana
if ! cmp -s $schema/package-lock.json $schema/node_modules/.locked; then
    (cd $schema && npm ci --silent --no-audit --no-fund)
    cp $schema/package-lock.json $schema/node_modules/.locked
fi
node $schema/validate.mjs docker/grafana/dashboards/*.json

echo '== every expression on a real Prometheus, and promtool on the page of a real service'
.venv/bin/python -m tests.ops.live

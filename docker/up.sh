#!/bin/sh
# `make up`: everything of docker-compose.yml, with secrets of its own. COMPOSE_PROFILES=demo adds traffic.
set -eu
cd "$(dirname "$0")/.."

help() {
    printf '%s\n' "$1" \
        "Containers need Docker with its compose plugin (https://docs.docker.com/engine/install);" \
        "'make run' starts the service without any, on 127.0.0.1:8000." >&2
    exit 1
}

secret() { head -c 32 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'; }

digest() { # as `solar key` makes them: the SHA-256 of the key
    if command -v sha256sum >/dev/null; then printf %s "$1" | sha256sum; else printf %s "$1" | shasum -a 256; fi \
        | cut -d ' ' -f 1
}

write_secrets() {
    umask 077
    web=$(secret) admin=$(secret)
    cat >.env.new <<END
# Made by make up; for this machine alone. docs/containers.md says how to change them.
# For those who call: API_KEY may rank and give feedback, ADMIN_KEY may do everything.
API_KEY=$web
ADMIN_KEY=$admin
# For the service: the same two, as hashes.
SOLAR_KEYS=web:rank+feedback:$(digest "$web"),admin:rank+feedback+admin:$(digest "$admin")
# Of Redis: the service's user solar, and the user operator, who may do everything.
REDIS_PASSWORD=$(secret)
REDIS_OPERATOR_PASSWORD=$(secret)
# Of the user admin.
GRAFANA_PASSWORD=$(secret)
END
    mv .env.new .env
}

[ "${1:-}" != secrets ] || { [ -e .env ] || write_secrets; exit 0; }
command -v docker >/dev/null || help "There is no docker command here."
docker compose version >/dev/null 2>&1 || help "This docker has no compose plugin."
docker info >/dev/null 2>&1 || help "The docker command reaches no engine (is it started, and may you use it?)."
[ -e .env ] || { write_secrets; echo "Secrets are in .env, for you alone."; }
docker compose up --detach --build --wait
cat <<END
The service:  http://127.0.0.1:${PUBLISH_API:-8000}  (Authorization: Bearer, with API_KEY or ADMIN_KEY of .env)
Grafana:      http://127.0.0.1:${PUBLISH_GRAFANA:-3000}  (admin, with GRAFANA_PASSWORD of .env)
Prometheus:   http://127.0.0.1:${PUBLISH_PROMETHEUS:-9090}
Simulated traffic: COMPOSE_PROFILES=demo make up.  The end: docker compose --profile demo down (the data stay).
END

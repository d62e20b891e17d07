#!/usr/bin/env bash
# Check the image and the compose file without a Docker engine: buildah builds docker/Dockerfile, trial.py runs
# the image read-only and without root, and play.py runs docker-compose.yml (without Grafana) in a separate
# network. Needs root on Debian (or a derivative) and package registries; installs missing packages. The base
# image is not pulled: it is bootstrapped from the same Debian release with its Python, and cached.
#
#   tools/ops/image.sh            SOLAR_DEV_OPS_CACHE=DIR: the cache of base image and layers
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${SOLAR_DEV_OPS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/solar-ops}
python=.venv/bin/python
export NO_AT_BRIDGE=1 DEBIAN_FRONTEND=noninteractive

report() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*"; }
failed() { report "FAILED: $*" >&2; exit 1; }
trap 'failed "line $LINENO: $BASH_COMMAND"' ERR

# ---- requirements ----

[ "$(id -u)" = 0 ] || failed "expected root, which creating containers requires"
[ "$(uname -m)" = x86_64 ] || failed "expected x86_64, the CPU that the image's kernels are compiled for"
unshare --net --mount true 2>/dev/null || { report "NOT TRIED: this machine cannot create namespaces"; exit 0; }
mkdir -p "$cache"

need() { # COMMAND PACKAGE …
    local missing=()
    while [ $# -gt 0 ]; do
        PATH=$PATH:/usr/sbin command -v "$1" >/dev/null || missing+=("$2")
        shift 2
    done
    [ ${#missing[@]} = 0 ] && return
    report "installing ${missing[*]}"
    [ -e /usr/sbin/policy-rc.d ] || { printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; }
    { apt-get update -qq && apt-get install -qqy --no-install-recommends "${missing[@]}"; } >"$cache/apt.log" 2>&1 \
        || { tail -5 "$cache/apt.log"; failed "apt-get install ${missing[*]}"; }
}
need buildah buildah debootstrap debootstrap nginx nginx promtool prometheus \
    amtool prometheus-alertmanager redis-server redis-server redis-cli redis-tools \
    dnsmasq dnsmasq-base ip iproute2 wget wget unzip unzip
[ -x $python ] || make setup

# ---- configuration files ----

report "hadolint: docker/Dockerfile"
.venv/bin/hadolint docker/Dockerfile
report "compose-spec: docker-compose.yml"
.venv/bin/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

# promtool needs rules.yml next to prometheus.yml, as in the container.
work=$(mktemp -d)
cleanup() { rm -rf "$work"; }
trap cleanup EXIT
report "promtool: docker/prometheus/prometheus.yml"
cp -r docker/prometheus "$work/prometheus"
promtool check config "$work/prometheus/prometheus.yml" >"$work/output" 2>&1 || { cat "$work/output"; exit 1; }
report "amtool: docker/alertmanager/alertmanager.yml"
amtool check-config docker/alertmanager/alertmanager.yml >"$work/output" 2>&1 || { cat "$work/output"; exit 1; }
report "nginx -t: docker/proxy/nginx.conf"
PATH=$PATH:/usr/sbin nginx -t -q -p "$work" -c "$PWD/docker/proxy/nginx.conf"

# ---- base image ----

image=$(sed -n 's/^ARG PYTHON_IMAGE=\([^@]*\).*/\1/p' docker/Dockerfile)
release=${image##*-}
buildah() { command buildah --root "$cache/$STORAGE_DRIVER" --runroot "$cache/run" "$@"; }
stores() { # whether the storage driver works; overlay does not on every file system
    local probe
    probe=$(buildah from scratch 2>/dev/null) && buildah mount "$probe" >/dev/null 2>&1 \
        && buildah rm "$probe" >/dev/null
}
export STORAGE_DRIVER=overlay
stores || { STORAGE_DRIVER=vfs && report "overlay does not work here: layers are copied"; }

if ! buildah inspect --type image "docker.io/library/$image" >/dev/null 2>&1; then
    report "bootstrapping a base in place of $image: Debian $release with its Python (minutes, once)"
    rm -rf "$cache/root"
    debootstrap --variant=minbase --include=ca-certificates,python3-minimal,libpython3-stdlib \
        "$release" "$cache/root" >"$cache/debootstrap.log" 2>&1 || { tail -5 "$cache/debootstrap.log"; exit 1; }
    # As in the official image: Python and pip in /usr/local, and no apt caches.
    version=$(basename "$(readlink -f "$cache/root/usr/bin/python3")")
    site=usr/local/lib/$version/site-packages
    mkdir -p "$cache/root/$site" "$cache/root/usr/local/lib/$version/dist-packages"
    ln -s /usr/bin/python3 "$cache/root/usr/local/bin/python3"
    ln -s /usr/bin/python3 "$cache/root/usr/local/bin/python"
    echo "/$site" >"$cache/root/usr/local/lib/$version/dist-packages/site-packages.pth"
    $python -m pip download -q --disable-pip-version-check --no-deps -d "$work" pip
    unzip -q "$work"/pip-*.whl -d "$cache/root/$site"
    printf '#!/bin/sh\nexec /usr/local/bin/python3 -m pip "$@"\n' >"$cache/root/usr/local/bin/pip"
    chmod +x "$cache/root/usr/local/bin/pip"
    rm -rf "$cache/root"/var/cache/apt/* "$cache/root"/var/lib/apt/lists/* "$cache/root"/usr/share/{doc,man,locale}/*
    container=$(buildah from scratch)
    buildah copy -q "$container" "$cache/root" / >/dev/null
    buildah config --env PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin --cmd python3 "$container"
    buildah commit -q --rm "$container" "docker.io/library/$image" >/dev/null
    rm -rf "$cache/root"
fi

# ---- image ----

report "building docker/Dockerfile, which also compiles the kernels"
# The build uses this machine's certificates, so that it reaches the same registries.
buildah bud --pull-never --isolation chroot --layers --format docker -q --build-arg PYTHON_IMAGE="$image" \
    -v /etc/ssl/certs:/etc/ssl/certs:ro -f docker/Dockerfile -t solar:check . >"$cache/build.log" 2>&1 \
    || { tail -30 "$cache/build.log"; exit 1; }

# ---- running containers ----

container=$(buildah from --pull-never solar:check)
cleanup() {
    buildah rm "$container" >/dev/null || true
    rm -rf "$work"
}
root=$(buildah mount "$container")
buildah inspect --type image solar:check >"$work/config.json"
size=$(du -sm "$root/opt/solar" | cut -f 1)
kernels=$(du -sk "$root/opt/solar/kernels" | cut -f 1)
packed=$(tar -C "$root" -c opt/solar | gzip -1 | wc -c)
report "the image adds $size MB to its base ($((packed / 1000000)) MB packed), $kernels kB of it kernels"
report "like docker run: one container with an embedded store"
$python -m tools.ops.trial "$root" "$work/config.json" "$work/trial"
report "like docker compose up: all services except Grafana"
unshare --net --mount --propagation private $python -m tools.ops.play "$root" "$work/config.json" "$work/play"
report "all checks passed"

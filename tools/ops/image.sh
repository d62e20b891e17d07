#!/usr/bin/env bash
# The image and what stands around it, checked by the programs that read them, without a Docker engine:
# buildah builds docker/Dockerfile, trial.py runs it read-only and without root, and play.py plays the whole
# docker-compose.yml (but Grafana) in a network of its own. Needs root on a Debian (or its like) and the
# package registries; installs what is missing. The base image comes from no registry here but is a Debian of
# the same release with the same Python, bootstrapped: a stand-in, kept for the next time.
#
#   tools/ops/image.sh            SOLAR_DEV_OPS_CACHE=DIR: where the base and the layers are kept
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${SOLAR_DEV_OPS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/solar-ops}
python=.venv/bin/python
export NO_AT_BRIDGE=1 DEBIAN_FRONTEND=noninteractive

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*"; }
failed() { say "FAILED: $*" >&2; exit 1; }
trap 'failed "line $LINENO: $BASH_COMMAND"' ERR

# ---- what it needs ----

[ "$(id -u)" = 0 ] || failed "expected root: containers are made here by hand"
[ "$(uname -m)" = x86_64 ] || failed "expected x86_64, which the image's kernels are compiled for"
unshare --net --mount true 2>/dev/null || { say "NOT TRIED: namespaces cannot be made here"; exit 0; }
mkdir -p "$cache"

need() { # COMMAND PACKAGE …
    local missing=()
    while [ $# -gt 0 ]; do
        PATH=$PATH:/usr/sbin command -v "$1" >/dev/null || missing+=("$2")
        shift 2
    done
    [ ${#missing[@]} = 0 ] && return
    say "installing ${missing[*]}"
    [ -e /usr/sbin/policy-rc.d ] || { printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; }
    { apt-get update -qq && apt-get install -qqy --no-install-recommends "${missing[@]}"; } >"$cache/apt.log" 2>&1 \
        || { tail -5 "$cache/apt.log"; failed "apt-get install ${missing[*]}"; }
}
need buildah buildah debootstrap debootstrap nginx nginx promtool prometheus \
    amtool prometheus-alertmanager redis-server redis-server redis-cli redis-tools \
    dnsmasq dnsmasq-base ip iproute2 wget wget unzip unzip
[ -x $python ] || make setup

# ---- the files, each by the program that reads it ----

say "hadolint: docker/Dockerfile"
.venv/bin/hadolint docker/Dockerfile
say "compose-spec: docker-compose.yml"
.venv/bin/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml

# Paths and names as they are within the containers.
work=$(mktemp -d)
cleanup() { rm -rf "$work"; }
trap cleanup EXIT
say "promtool: docker/prometheus/prometheus.yml"
cp -r docker/prometheus "$work/prometheus"
promtool check config "$work/prometheus/prometheus.yml" >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
say "amtool: docker/alertmanager/alertmanager.yml"
amtool check-config docker/alertmanager/alertmanager.yml >"$work/said" 2>&1 || { cat "$work/said"; exit 1; }
say "nginx -t: docker/proxy/nginx.conf"
PATH=$PATH:/usr/sbin nginx -t -q -p "$work" -c "$PWD/docker/proxy/nginx.conf"

# ---- a base to build on ----

image=$(sed -n 's/^ARG PYTHON_IMAGE=//p' docker/Dockerfile)
release=${image##*-}
buildah() { command buildah --root "$cache/$STORAGE_DRIVER" --runroot "$cache/run" "$@"; }
stores() { # whether images can be kept like this; overlay cannot on every file system
    local probe
    probe=$(buildah from scratch 2>/dev/null) && buildah mount "$probe" >/dev/null 2>&1 \
        && buildah rm "$probe" >/dev/null
}
export STORAGE_DRIVER=overlay
stores || { STORAGE_DRIVER=vfs && say "no overlay here: layers are copied"; }

if ! buildah inspect --type image "docker.io/library/$image" >/dev/null 2>&1; then
    say "a stand-in for $image: Debian $release with its Python (takes minutes, once)"
    rm -rf "$cache/root"
    debootstrap --variant=minbase --include=ca-certificates,python3-minimal,libpython3-stdlib \
        "$release" "$cache/root" >"$cache/debootstrap.log" 2>&1 || { tail -5 "$cache/debootstrap.log"; exit 1; }
    # As in the real one: Python and pip in /usr/local, and nothing that apt has left.
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

# ---- the image ----

say "building docker/Dockerfile on it (kernels are compiled in the build)"
# Its registries as this machine reaches them: by the certificates it trusts.
buildah bud --pull-never --isolation chroot --layers --format docker -q \
    -v /etc/ssl/certs:/etc/ssl/certs:ro -f docker/Dockerfile -t solar:check . >"$cache/build.log" 2>&1 \
    || { tail -30 "$cache/build.log"; exit 1; }

# ---- the image at work ----

container=$(buildah from --pull-never solar:check)
cleanup() {
    buildah rm "$container" >/dev/null || true
    rm -rf "$work"
}
root=$(buildah mount "$container")
buildah inspect --type image solar:check >"$work/config.json"
ours=$(du -sm "$root/opt/solar" | cut -f 1)
kernels=$(du -sk "$root/opt/solar/kernels" | cut -f 1)
packed=$(tar -C "$root" -c opt/solar | gzip -1 | wc -c)
say "the image adds $ours MB to its base ($((packed / 1000000)) MB packed), $kernels kB of it kernels"
say "docker run: one container with its own store"
$python -m tools.ops.trial "$root" "$work/config.json" "$work/trial"
say "docker compose up: everything but Grafana"
unshare --net --mount --propagation private $python -m tools.ops.play "$root" "$work/config.json" "$work/play"
say "all of it passed"

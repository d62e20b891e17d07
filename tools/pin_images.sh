#!/bin/sh
# Write the digest of every image of others into docker-compose.yml, docker/Dockerfile and k8s/. A tag can move to
# another image; a digest cannot. The digest is that of all platforms of the tag.
#
#   sh tools/pin_images.sh            look up every tag again and write its digest
#   sh tools/pin_images.sh --check    change nothing; exit 1 if a digest is missing or differs from the registry's
#
# Needs the registry, and skopeo, crane or docker with buildx. No file is changed unless every digest was found.
set -eu
cd "$(dirname "$0")/.."

fail() { printf 'pin_images: %s\n' "$1" >&2; exit 1; }

case "${1:-}" in
    '') check= ;;
    --check) check=yes ;;
    *) fail "unknown argument '$1'; expected --check or nothing" ;;
esac

if command -v skopeo >/dev/null; then tool=skopeo
elif command -v crane >/dev/null; then tool=crane
elif command -v docker >/dev/null && docker buildx version >/dev/null 2>&1; then tool=docker
else fail "no skopeo, crane or docker with buildx found; install one of them"
fi

digest_of() { # NAME:TAG
    case $tool in
        skopeo) skopeo --command-timeout 60s --override-os linux inspect --no-tags --format '{{.Digest}}' "docker://$1" ;;
        crane) crane digest "$1" ;;
        docker) docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$1" ;;
    esac
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files=$(find docker-compose.yml docker k8s -name '*.yaml' -o -name '*.yml' -o -name 'Dockerfile*' | sort)

# One program for both passes. It prints FILE:LINE NAME:TAG of every image, or, with the digests of `pins`, the file.
# `solar` is built here. The image of a resource in k8s/ may lack a tag if a kustomization has it.
cat >"$work/images.awk" <<'END'
function report(image) { if (!pins && image !~ /^solar(:|$)/) print FILENAME ":" FNR, image }
function plain(image) { sub(/@sha256:[0-9a-f]*$/, "", image); return image }
function pinned(image) { return plain(image) in digest ? plain(image) "@" digest[plain(image)] : image }
function finish(    at, pin) { # the entry of a kustomization
    if (tag != "") report(name ":" tag)
    pin = (name ":" tag) in digest ? digest[name ":" tag] : ""
    for (at = 1; at <= lines; at++) {
        if (pins && !(pin && entry[at] ~ /^ *digest:/)) print entry[at]
        if (pin && entry[at] ~ /^ *newTag:/) { match(entry[at], /^ */); print substr(entry[at], 1, RLENGTH) "digest: " pin }
    }
    name = tag = ""; lines = 0
}
BEGIN { while (pins && (getline line < pins) > 0) { split(line, part, " "); digest[part[1]] = part[2] } }
FNR == 1 { finish(); listed = 0 }
FILENAME ~ /kustomization\.yaml$/ {
    if (/^[^ #-]/) { finish(); listed = /^images:/ }
    if (listed && /^ *- name: /) { finish(); name = $3 }
    if (listed && $1 == "newName:") name = $2
    if (listed && $1 == "newTag:") tag = $2
    if (name != "") entry[++lines] = $0; else if (pins) print
    next
}
/^ *(- )?image: / || /^ARG [A-Z_]*IMAGE=/ || /^FROM / {
    match($0, /^ *(- )?image: +|^ARG [A-Z_]*IMAGE=|^FROM +(--[^ ]+ +)*/)
    before = substr($0, 1, RLENGTH); rest = substr($0, RLENGTH + 1)
    image = rest; sub(/[ \t].*/, "", image)
    after = substr(rest, length(image) + 1)
    if (before ~ /FROM/ && toupper($(NF - 1)) == "AS") stage[$NF] = 1
    known = before ~ /FROM/ && (image in stage || image == "scratch" || image ~ /^\$/)
    if (!known) { report(plain(image)); image = pinned(image) }
    if (pins) print before image after
    next
}
pins { print }
END { finish() }
END

# shellcheck disable=SC2086  # names without spaces
awk -f "$work/images.awk" $files >"$work/found"
while read -r place image; do
    repository=${image##*/}
    case $repository in
        *:latest) fail "$place: $image: expected a version, got latest" ;;
        *:?*) printf '%s\n' "$image" ;;
        *)  case $place in k8s/*) grep -rqE --include=kustomization.yaml "^ *- name: $image\$" k8s && continue ;; esac
            fail "$place: $image: expected a tag" ;;
    esac
done <"$work/found" >"$work/all"
sort -u "$work/all" >"$work/images"

while read -r image; do
    digest=$(digest_of "$image" </dev/null 2>"$work/error") \
        || fail "$image: $tool found no digest; is the registry reachable? $(tail -n 1 "$work/error")"
    printf %s "$digest" | grep -qE '^sha256:[0-9a-f]{64}$' || fail "$image: expected a digest from $tool, got '$digest'"
    printf '%s %s\n' "$image" "$digest"
done <"$work/images" >"$work/pins"

differing=0
for file in $files; do
    awk -v pins="$work/pins" -f "$work/images.awk" "$file" >"$work/new"
    cmp -s "$work/new" "$file" && continue
    differing=$((differing + 1))
    if [ "$check" ]; then echo "$file: a digest is missing or old"; else cat "$work/new" >"$file"; echo "$file: pinned"; fi
done
if [ "$check" ] && [ $differing != 0 ]; then fail "run sh tools/pin_images.sh"; fi
echo "$(wc -l <"$work/pins" | tr -d ' ') images have digests"

#!/bin/sh
# Fetch a version of uPlot from npm into app/api/console and update the hashes in its README.md.
#
#   sh tools/vendor_uplot.sh 1.6.32
set -eu
version=$1
folder=$(cd "$(dirname "$0")/../app/api/console" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent "uplot@$version" >packed  # npm verifies the registry's hash
tar -xzf "$(cat packed)"
cp package/dist/uPlot.iife.min.js "$folder"
cp package/LICENSE "$folder/uPlot.LICENSE"
cd "$folder"
files='uPlot.LICENSE uPlot.iife.min.js'
{
    sed '/^```text$/,$d' README.md
    echo '```text'
    echo "# uplot $version"
    sha256sum $files
    echo '```'
} >"$work/README.md"
cp "$work/README.md" README.md
chmod 644 $files README.md

#!/bin/sh
# Fetch a version of swagger-ui-dist from npm into app/api/swagger and update its SHA256SUMS.
#
#   sh tools/vendor_swagger.sh 5.34.1
set -eu
version=$1
folder=$(cd "$(dirname "$0")/../app/api/swagger" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent "swagger-ui-dist@$version" >packed  # npm verifies the registry's hash
tar -xzf "$(cat packed)"
cd package

# Debuggers would request the source map, which the service does not have.
sed -i 's|/\*# sourceMappingURL=[^*]*\*/||' swagger-ui.css
files='LICENSE NOTICE favicon-32x32.png swagger-ui-bundle.js swagger-ui-bundle.js.LICENSE.txt swagger-ui.css'
cp $files "$folder"
{ echo "# swagger-ui-dist $version"; sha256sum $files; } >"$folder/SHA256SUMS"
chmod 644 "$folder"/*

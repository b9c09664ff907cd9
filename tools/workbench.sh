#!/bin/sh
# A real VS Code in the browser, for tests/editors/test_workbench.py: the npm package code-server, put into .cache/workbench.
# It brings VS Code's own workbench and extension host, and fetches nothing but from the npm registry; what it wants built,
# or downloads, for terminals with passwords, search and Windows is left out. Takes Node 20, a C++ compiler and minutes.
set -e
version=4.96.4
here=$(cd "$(dirname "$0")/.." && pwd)/.cache/workbench
[ -f "$here/ready-$version" ] && exit 0
case $(node --version) in
    v20.*) ;;
    *) echo "code-server $version runs on Node 20, and \`node\` is $(node --version)" >&2; exit 1 ;;
esac
rm -rf "$here" && mkdir -p "$here" && cd "$here"
echo '{"name": "workbench", "version": "1.0.0", "private": true}' > package.json
npm install --ignore-scripts --no-audit --no-fund --silent "code-server@$version"
# Its scripts do not run, so argon2, which hashes passwords, is not built; there is no password here.
echo 'module.exports = {};' > node_modules/argon2/argon2.js
cd node_modules/code-server/lib/vscode
rm -f npm-shrinkwrap.json  # it names sources that are no registry
npm install --ignore-scripts --omit=dev --no-audit --no-fund --silent
if [ -f /usr/include/node/node_api.h ]; then export npm_config_nodedir=/usr; fi
npm rebuild --silent @vscode/spdlog native-watchdog node-pty @parcel/watcher
ln -sfn node_modules node_modules.asar
touch "$here/ready-$version"

#!/bin/sh
# Writes editors/tree-sitter-route/src/ from grammar.js with tree-sitter's generator; with --check, 1 where a file would change.
# The generator is Debian 13's (tools/foreign.sh). It needs Node, which reads grammar.js.
set -e
root=$(cd "$(dirname "$0")/.." && pwd)
grammar=$root/editors/tree-sitter-route
sh "$root/tools/foreign.sh"
PATH=$PATH:$root/.cache/node/bin # where tools/node.sh puts Node if the PATH has none
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir "$made/src"
cp "$grammar/grammar.js" "$grammar/language.json" "$made/"
(cd "$made" && "$root/.cache/debian/run" tree-sitter generate --no-bindings)
rm -f "$made/src/tree_sitter/alloc.h" "$made/src/tree_sitter/array.h" # which neither parser.c nor scanner.c includes
(cd "$made" && sha256sum grammar.js language.json src/parser.c) > "$made/src/made-from"
if [ "$1" = --check ]; then
    for file in grammar.json node-types.json parser.c tree_sitter/parser.h made-from; do
        cmp "$made/src/$file" "$grammar/src/$file" || { echo "$file is stale: run tools/tree_sitter.sh" >&2; exit 1; }
    done
else
    cp -r "$made/src/." "$grammar/src/"
fi

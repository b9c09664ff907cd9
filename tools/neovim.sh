#!/bin/sh
# The tests drive a real Neovim. Installs Debian's where there is none and that is possible; else says what is missing.
command -v nvim >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends neovim >/dev/null && exit 0
fi
echo "tests/lsp/test_neovim.py needs Neovim 0.7 or later (\`nvim\` on the PATH), and it could not be installed" >&2

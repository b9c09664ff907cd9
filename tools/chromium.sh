#!/bin/sh
# The tests look at the playground in a real browser. Installs Debian's Chromium where there is none and that is possible; else says
# what is missing.
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null && exit 0
fi
echo "tests/playground/test_browser.py needs Chromium (\`chromium\` on the PATH), and it could not be installed" >&2

#!/bin/sh
# The tests run the kernels that are compiled at first use. Installs Debian's C++ compiler where there is none and that is possible;
# else says what is missing, since these tests would be skipped.
command -v "${CXX:-c++}" >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends g++ >/dev/null && exit 0
fi
echo "tests of the compiled kernels need a C++ compiler (\$CXX, or \`c++\` on the PATH), and it could not be installed" >&2
exit 1

#!/bin/sh
# Programs of Debian 13 that Debian 12 does not have: tree-sitter's generator and Helix. They are put into .cache/debian beside
# Debian 13's C library, and nothing is installed: `.cache/debian/run hx ...` starts one. The packages come from the mirror that apt uses,
# and apt compares them with the signed lists.
set -e
suite=trixie
packages="tree-sitter-cli hx libc6 libgcc-s1"
here=$(cd "$(dirname "$0")/.." && pwd)/.cache/debian
[ -f "$here/ready" ] && [ "$(cat "$here/ready")" = "$packages" ] && exit 0
command -v apt-get >/dev/null || { echo "tools/foreign.sh needs apt, and there is none" >&2; exit 1; }
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v -i security | head -n 1)
[ -n "$mirror" ] || { echo "tools/foreign.sh: apt knows no mirror of Debian" >&2; exit 1; }
rm -rf "$here" && mkdir -p "$here/lists/partial" "$here/archives/partial" "$here/root"
cd "$here"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > sources.list
apt() {
    apt-get -qq -o Dir::Etc::SourceList="$here/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$here/lists" \
        -o Dir::Cache="$here" -o Dir::State::Status=/dev/null -o APT::Sandbox::User=root "$@"
}
apt update
# shellcheck disable=SC2086
apt download $packages
for package in *.deb; do dpkg-deb -x "$package" root; done
rm -rf -- *.deb lists archives ./*.bin
cat > run <<'R'
#!/bin/sh
# Starts a program of root/ with the C library that lies beside it.
here=$(dirname "$(readlink -f "$0")")
lib=$(dirname "$here"/root/usr/lib/*/libc.so.6)
program=$(readlink -f "$here/root/usr/bin/$1")
export HELIX_RUNTIME="$here/root/usr/lib/hx/runtime"
shift
exec "$lib"/ld-linux-*.so.* --library-path "$lib" "$program" "$@"
R
chmod +x run
echo "$packages" > ready

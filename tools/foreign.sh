#!/bin/sh
# Programs that Debian 12 does not have, or has of an older kind: tree-sitter's generator, Helix, and Neovim 0.10, all of Debian 13. They
# are put into .cache/debian beside Debian 13's C library, and nothing is installed: `.cache/debian/run hx ...` starts one. The packages
# come from the mirror that apt uses, and apt compares them with the signed lists.
set -e
suite=trixie
packages="tree-sitter-cli hx neovim neovim-runtime libc6 libgcc-s1 libluajit-5.1-2 libmsgpack-c2 libtree-sitter0.22 libunibilium4 \
libuv1t64 libvterm0 lua-lpeg lua-luv"
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
export HELIX_RUNTIME="$here/root/usr/lib/hx/runtime" VIMRUNTIME="$here/root/usr/share/nvim/runtime"
shift
exec "$lib"/ld-linux-*.so.* --library-path "$lib" "$program" "$@"
R
chmod +x run
echo "$packages" > ready

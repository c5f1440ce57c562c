# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Uses the Debian package, an installed folder and the wheel in a fresh root of Debian or Ubuntu.

# Runs a command in the root $fresh, without any of this machine's environment.
inRoot() {
  chroot "$fresh" /usr/bin/env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    DEBIAN_FRONTEND=noninteractive "$@"
}

# The root keeps no mount of this machine, so it can be removed as a folder.
leaveRoot() { ! mountpoint -q "$fresh/proc" || umount "$fresh/proc"; }

makeRoot() {
  local components=main
  [[ $2 != *ubuntu* ]] || components=main,universe # python3-venv
  say "install-test: making a root of $1 in $fresh"
  quietly debootstrap "$build/debootstrap.log" debootstrap --variant=minbase --components="$components" \
    --include=ca-certificates "$1" "$fresh" "$2"
  [[ ! -f /etc/resolv.conf ]] || cp -L /etc/resolv.conf "$fresh/etc/resolv.conf"
  trap leaveRoot EXIT
  mount --bind /proc "$fresh/proc"
}

installInRoot() {
  quietly "apt-get in $fresh" "$build/install-test.log" inRoot apt-get install -y --no-install-recommends "$@"
}

# The arguments: a folder that is not there yet, the suite, its mirror.
runInstallTest() {
  fresh=${1-}
  [[ -n $fresh && ! -e $fresh ]] || fail "install-test needs a folder that is not there yet for the root: ROOT [SUITE [MIRROR]]"
  [[ $(id -u) -eq 0 ]] || fail "install-test needs root, for chroot"
  command -v debootstrap >/dev/null || fail "install-test needs debootstrap; apt-get install debootstrap"
  installMissing
  configure
  hasRuntime || fail "install-test needs the runtime, and there is no CUDA toolkit here (no cuda.h) to build it with"
  buildConfigured
  local version wheel here=$fresh/pumpgraph
  wheel=$(/usr/bin/python3 "$root/tools/wheel/build_wheel.py" --build-dir "$build" 2>"$build/wheel.log") ||
    fail "the wheel was not built; the log is $build/wheel.log"
  version=$(sed -nE 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
  quietly cpack "$build/package.log" cpack -G DEB --config "$build/CPackConfig.cmake" -B "$build/package"

  makeRoot "${2-bookworm}" "${3-http://deb.debian.org/debian}"
  mkdir -p "$here"
  cp "$build/package/pumpgraph_${version}_"*.deb "$here/pumpgraph.deb"
  cp "$wheel" "$here"
  tar -C "$root" -c test runtime/python | tar -C "$here" -x
  quietly "cmake --install" "$build/install-test.log" cmake --install "$build" --prefix "$fresh/opt/pumpgraph" --strip

  say "install-test: the Debian package with its dependencies alone"
  installInRoot /pumpgraph/pumpgraph.deb
  inRoot pump-graph-opt /pumpgraph/test/data/resnet50.mlir.gz --budget=50% --report=json:/pumpgraph/report.json
  grep -q '"checked": *true' "$here/report.json" || fail "no checked plan in $here/report.json"

  installInRoot cmake g++ make pkg-config python3 python3-venv
  say "install-test: a project outside the tree, with the package and with a folder of cmake --install"
  inRoot python3 /pumpgraph/test/install/install_test.py cmake /usr "$version"
  inRoot python3 /pumpgraph/test/install/install_test.py cmake /opt/pumpgraph "$version"
  say "install-test: the wheel"
  inRoot env PUMPGRAPH_WHEEL="/pumpgraph/${wheel##*/}" python3 /pumpgraph/test/python/test_wheel.py
  say "install-test: all works in ${2-bookworm}; remove $fresh when it has served"
}

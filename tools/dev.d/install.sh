# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Installing what a build needs, on Debian 12. LLVM 22 is in its security archive.

debianPackages=(
  cmake ninja-build g++ pkgconf
  libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools clang-format-22
  clang-22 clang-tools-22 clang-tidy-22 libclang-22-dev libclang-rt-22-dev
  libfmt-dev libexpected-dev nlohmann-json3-dev libgtest-dev libgmock-dev zlib1g-dev spin
  python3 python3-scipy python3-setuptools python3-venv python3-wheel binutils git ca-certificates
  mypy flake8 shellcheck mkdocs doxygen
)

# Prints those of the packages that are not installed.
missingPackages() {
  local installed
  installed=$(dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' "${debianPackages[@]}" 2>/dev/null || true)
  local package
  for package in "${debianPackages[@]}"; do
    grep -qFx "$package installed" <<<"$installed" || printf '%s\n' "$package"
  done
}

# Sets `asRoot` to the words that run a command as root; fails if there are none.
findRoot() {
  asRoot=()
  [[ $(id -u) -ne 0 ]] || return 0
  command -v sudo >/dev/null || return 1
  asRoot=(sudo)
  [[ -t 0 ]] || asRoot=(sudo -n)
  "${asRoot[@]}" true 2>/dev/null
}

aptGet() {
  "${asRoot[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

# Installs the packages named; refreshes apt's lists only if they do not know them or are out of date.
aptInstall() {
  local install=(install --no-install-recommends "$@")
  if aptGet --simulate "${install[@]}" >/dev/null 2>&1 && aptGet "${install[@]}"; then
    return 0
  fi
  aptGet update && aptGet "${install[@]}"
}

installMissing() {
  if ! command -v dpkg-query >/dev/null; then
    say "install: this is not Debian; going on with what is here (Debian's names for what is needed: ${debianPackages[*]})"
    return 0
  fi
  local missing
  mapfile -t missing < <(missingPackages)
  [[ ${#missing[@]} -gt 0 ]] || return 0
  if ! findRoot; then
    {
      say "tools/dev: ${#missing[@]} packages are missing and installing them needs root or sudo. As root, run:"
      say "apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    } >&2
    exit 1
  fi
  say "install: ${missing[*]}"
  local log start=$SECONDS
  log=$(mktemp)
  if ! aptInstall "${missing[@]}" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    fail "apt-get failed, log in $log; LLVM 22 needs Debian 12 with its security archive (bookworm-security)"
  fi
  rm -f "$log"
  say "install: done in $((SECONDS - start)) s"
}

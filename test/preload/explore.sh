#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Explores every order in which threads get past a plan in force, and sees to it that broken protocols are found out.
set -euo pipefail

model=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# errors DEFINITIONS...: how many errors there are: assertions, and threads that wait for ever.
errors() {
  spin "$@" -a "$model" >/dev/null
  cc -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=1024 -o pan pan.c
  ./pan -m1000000 >pan.out || true
  if grep -qE 'max search depth too small|out of memory|reached -DMEMLIM' pan.out; then
    cat pan.out >&2
    exit 1
  fi
  count=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.out)
  echo "$*: $(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out) states, ${count} errors"
}

for variant in -DTHREAD -DLIBRARY; do
  errors "$variant"
  [[ $count == 0 ]] || { cat pan.out >&2; exit 1; }
done
for broken in NO_COUNT COUNT_NO_CAPTURED ASIDE_FIRST "ASIDE_LOCKS -DLIBRARY" NO_TAKE_BACK INSTALL_ASIDE; do
  # shellcheck disable=SC2086 # one or two words
  errors -D$broken
  [[ $count != 0 ]] || { echo "a broken protocol passes" >&2; exit 1; }
done

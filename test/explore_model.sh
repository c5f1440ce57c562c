# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Explores a spin model, the first argument of the script that sources this, and sees to it that broken protocols are
# found out.
set -euo pipefail

model=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# errors MODE DEFINITIONS...: how many errors there are. MODE is "safety" (assertions, threads that wait for ever) or
# "progress" (no replay hangs, if no thread is starved).
errors() {
  local mode=$1 build run
  shift
  if [[ $mode == safety ]]; then
    spin "$@" -a -noclaim "$model" >/dev/null
    build=(-DSAFETY -DNOCLAIM -DCOLLAPSE) run=()
  else
    spin "$@" -a "$model" >/dev/null
    build=(-DNFAIR=3) run=(-a -f)
  fi
  cc -O2 -w -DMEMLIM=1024 "${build[@]}" -o pan pan.c
  ./pan -m1000000 "${run[@]}" >pan.out || true
  # What was not searched to the end says nothing.
  if grep -qE 'max search depth too small|out of memory|reached -DMEMLIM' pan.out; then
    cat pan.out >&2
    exit 1
  fi
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
  count=$(sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.out)
}

isRight() {
  errors "$@"
  echo "$*: ${states} states, ${count} errors"
  [[ $count == 0 ]] || { cat pan.out >&2; exit 1; }
}

isFoundOut() {
  errors "$@"
  echo "$*: broken, ${count} errors"
  [[ $count != 0 && -n $count ]] || { echo "a broken protocol passes" >&2; exit 1; }
}

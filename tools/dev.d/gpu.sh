# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What needs a GPU.

# Reads what the driver says into `facts` (driver_facts.py lists the keys); without python3 there is only a reason.
readDriverFacts() {
  declare -gA facts=([devices]=0 [reason]="python3, which asks the driver, is missing")
  command -v python3 >/dev/null || return 0
  local key value
  while read -r key value; do
    facts[$key]=$value
  done < <(python3 "$root/tools/dev.d/driver_facts.py")
}

# Runs a command whose Python finds this checkout's package, and that finds this build's library.
withPumpGraph() {
  env PYTHONPATH="$root/runtime/python${PYTHONPATH:+:$PYTHONPATH}" PUMPGRAPH_LIBRARY="$build/lib/libpumpgraph.so" "$@"
}

requireGpu() {
  readDriverFacts
  [[ ${facts[devices]} -gt 0 ]] || fail "$command needs a GPU: ${facts[reason]}; 'tools/dev doctor' tells what to do"
}

# Whether the build folder came from another machine: binaries only.
isCarried() { [[ -d $build/bin && -d $build/lib ]] && ! isConfiguredHere; }

# A carried build folder is used as it is; any other is brought up to date.
bringUpToDate() {
  if isCarried; then
    say "$command: using the binaries in $build as they are"
    return
  fi
  installAndBuild
  hasRuntime || fail "$command needs libpumpgraph.so, and there is no CUDA toolkit to build it with; 'tools/dev doctor' tells what to do"
}

runGpuTests() {
  requireGpu
  bringUpToDate
  withPumpGraph python3 "$root/test/gpu/run_gpu_tests.py" --build-dir "$build" "$@"
}

runGpuBench() {
  # Tables of an earlier run's results need no GPU.
  if [[ " $* " != *" --from"[\ =]* && " $* " != *" --help "* ]]; then
    requireGpu
    bringUpToDate
  fi
  withPumpGraph python3 "$root/tools/pump-graph-bench" --binaries "$build/bin" "$@"
}

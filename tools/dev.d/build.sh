# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Configure, build, test, format.

# Runs a command with its output in a log, of which the end is shown if it fails: quietly NAME LOG COMMAND...
quietly() {
  local name=$1 log=$2
  shift 2
  if ! "$@" >"$log" 2>&1 </dev/null; then
    tail -n 60 "$log" >&2
    fail "$name failed; the whole log is $log"
  fi
}

# Shows how far ninja has come in its log, without end: on one line of a terminal, else once a minute.
showProgress() {
  local log=$1 start=$SECONDS next=60 steps
  [[ ! -t 1 ]] || next=0
  while sleep 1 >/dev/null; do
    [[ $((SECONDS - start)) -ge $next ]] || continue
    steps=$(tail -n 1 "$log" 2>/dev/null | sed -nE 's/^\[([0-9]+)\/([0-9]+)\].*/\1 of \2/p')
    [[ -n $steps ]] || continue
    if [[ -t 1 ]]; then
      printf '\r\033[Kbuild: %s steps, %d s' "$steps" $((SECONDS - start))
    else
      say "build: $steps steps, $((SECONDS - start)) s"
      next=$((next + 60))
    fi
  done
}

# The arguments are ninja's.
runNinja() {
  showProgress "$build/build.log" &
  shower=$!
  trap 'kill "$shower"' EXIT
  quietly build "$build/build.log" ninja -C "$build" "$@"
  trap - EXIT
  kill "$shower"
  wait "$shower" 2>/dev/null || true
  [[ ! -t 1 ]] || printf '\r\033[K'
}

# Whether the build folder was configured, and from this tree (not copied here from elsewhere).
isConfiguredHere() {
  grep -qsFx "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"
}

# The arguments and `settings` are cmake's.
configure() {
  local options=(-G Ninja "${settings[@]}" "$@")
  if [[ -f $build/CMakeCache.txt ]] && ! isConfiguredHere; then
    fail "$build was configured for another source folder; remove it or give another with --build-dir"
  fi
  if command -v ccache >/dev/null; then
    # By default it caches nothing that uses precompiled headers.
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
      -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)
  fi
  mkdir -p "$build"
  quietly configure "$build/configure.log" cmake -S "$root" -B "$build" "${options[@]}"
}

hasRuntime() { ! grep -qsE '^PUMPGRAPH_CUDA_INCLUDE:[A-Z]+=.*NOTFOUND$' "$build/CMakeCache.txt"; }

# Configures and builds; the arguments are ninja's (targets, -j).
buildAll() {
  configure
  buildConfigured "$@"
}

buildConfigured() {
  local start=$SECONDS
  say "build: running, log in $build/build.log"
  runNinja "$@"
  say "build: done in $((SECONDS - start)) s, in $build"
  if ! hasRuntime; then
    say "build: no CUDA toolkit here (no cuda.h; set CUDA_HOME if there is one): graph/, passes/ and pump-graph-opt only, not runtime/"
  fi
}

installAndBuild() {
  installMissing
  buildAll "$@"
}

runPlanBench() {
  [[ " $* " == *" --help "* ]] || installAndBuild pump-graph-opt
  python3 "$root/tools/plan-bench" --tool "$build/bin/pump-graph-opt" "$@"
}

# Debian's own Python has what it needs; the path of the wheel is the last line.
buildWheel() {
  [[ $# -eq 0 ]] || fail "wheel takes no arguments: $*"
  installMissing
  configure
  hasRuntime || fail "a wheel needs the runtime, and there is no CUDA toolkit here (no cuda.h) to build it with"
  buildConfigured pumpgraph pumpgraph-compiler pump-graph-opt launcher
  /usr/bin/python3 "$root/tools/wheel/build_wheel.py" --build-dir "$build" 2>"$build/wheel.log" ||
    fail "the wheel was not built; the log is $build/wheel.log"
}

# How many lines of the files match: countLines PATTERN FILES...
countLines() { cat "${@:2}" 2>/dev/null | grep -cE "$1" || true; }

# Prints "N passed, N failed" from ctest's JUnit files, read test by test: ctest's own totals count a skipped test as
# passed in one place and a missing executable as skipped in another. Fails unless tests ran and all passed.
summarizeTests() {
  local passed failed skipped all
  all=$(countLines '<testcase ' "$@")
  passed=$(countLines '<testcase .*status="run"' "$@")
  skipped=$(countLines '<testcase .*status="disabled"|<skipped message="SKIP_' "$@")
  failed=$((all - passed - skipped))
  [[ $((passed + failed)) -gt 0 ]] || say "test: no test ran" >&2
  local line="$passed passed, $failed failed"
  [[ $skipped -eq 0 ]] || line+=", $skipped skipped"
  say "$line"
  [[ $passed -gt 0 && $failed -eq 0 ]]
}

# Runs the tests in the build folder; adds to `results` and, if one fails, sets `status`. The arguments are ctest's.
testBuild() {
  local junit=$build/ctest.xml
  rm -f "$junit"
  results+=("$junit")
  # The time limit, in seconds, is for a test that hangs: none takes near as long. With more freed blocks at hand for
  # each thread than glibc keeps by itself, tests that plan take an eighth less.
  GLIBC_TUNABLES=glibc.malloc.tcache_count=2000 ctest --test-dir "$build" --parallel "$(nproc)" \
    --timeout "$mostTestSeconds" --output-on-failure --no-tests=error --output-junit "$junit" "$@" </dev/null || status=$?
}

# Builds with a sanitizer in a folder of its own, and tests there: testSanitized SANITIZER TARGET CTEST ARGUMENTS...
testSanitized() {
  local build=$build/$1 options=(-DPUMPGRAPH_SANITIZE="$1" -DPUMPGRAPH_WERROR=OFF)
  if command -v clang++-22 >/dev/null; then # it has libFuzzer
    options+=(-DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22)
  fi
  say "test: with the $1 sanitizer"
  configure "${options[@]}"
  runNinja "$2"
  # LLVM is not sanitized, but poisons memory by itself. The fake driver frees nothing before its end. Detection of
  # stack use after return doubles the time of a test.
  ASAN_OPTIONS=allow_user_poisoning=0:detect_leaks=0:detect_stack_use_after_return=0 \
    UBSAN_OPTIONS=print_stacktrace=1 testBuild "${@:3}"
}

# Without arguments: the tests of continuous integration. With --long: all tests under all sanitizers, those with the
# label "thorough" too, fuzz targets for an hour each, property tests with fresh seeds and all of their steps. Other
# arguments are ctest's, and mean the ordinary build alone.
runTests() {
  local results=() status=0 mostTestSeconds=3600
  if [[ ${1-} == --long ]]; then
    [[ $# -eq 1 ]] || fail "test --long takes no arguments: ${*:2}"
    local fuzzSeconds=${PUMPGRAPH_FUZZ_SECONDS-3600} firstSeed
    firstSeed=$(date +%s)
    mostTestSeconds=$((fuzzSeconds + 36000))
    say "test: property tests begin with seed $firstSeed"
    settings=(-DPUMPGRAPH_FIRST_SEED="$firstSeed" -DPUMPGRAPH_FUZZ_SECONDS="$fuzzSeconds" -DPUMPGRAPH_PROPERTY_PERCENT=100)
    installAndBuild
    testBuild
    testSanitized address all
    testSanitized thread all
  else
    settings=(-DPUMPGRAPH_FIRST_SEED=0 -DPUMPGRAPH_PROPERTY_PERCENT=40)
    installAndBuild
    if [[ $# -ne 0 ]]; then
      testBuild "$@"
    else
      testBuild --label-exclude thorough
      settings+=(-DPUMPGRAPH_FUZZ_SECONDS=60 -DPUMPGRAPH_PROPERTY_PERCENT=1)
      testSanitized address all --label-exclude long
      testSanitized thread thread_tests --label-regex threads
    fi
  fi
  summarizeTests "${results[@]}" || exit 1
  exit "$status"
}

formatSources() {
  local check=""
  if [[ ${1-} == --check ]]; then
    check=yes
    shift
  fi
  command -v clang-format-22 >/dev/null || fail "no clang-format-22; 'tools/dev build' installs it"
  local files=("$@")
  if [[ $# -eq 0 ]]; then
    cd "$root"
    mapfile -t -d '' files < <(trackedFiles '*.h' '*.hpp' '*.cpp' '*.cu')
  fi
  [[ ${#files[@]} -gt 0 ]] || return 0
  if [[ -z $check ]]; then
    clang-format-22 -i "${files[@]}"
    return
  fi
  local file refused=0
  for file in "${files[@]}"; do
    clang-format-22 --dry-run -Werror "$file" >/dev/null 2>&1 && continue
    refused=$((refused + 1))
    say "not formatted: $file" >&2
  done
  [[ $refused -eq 0 ]] || fail "$refused of ${#files[@]} files are not formatted; 'tools/dev format' mends them"
}

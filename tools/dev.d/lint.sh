# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Static checks. What each tool is asked is in setup.cfg (Python) and .clang-tidy (C++).

# The C++ files of a change that `tools/dev lint` looks into; one takes two to eight seconds.
mostChangedFiles=8

# The files in git that match, NUL-terminated; in a tree without git, all outside the build folders: trackedFiles GLOBS...
trackedFiles() {
  local file glob names=()
  if [[ -e $root/.git ]]; then
    git -C "$root" -c safe.directory="$root" ls-files -z --deduplicate -- "$@" |
      while IFS= read -r -d '' file; do
        [[ ! -f $root/$file ]] || printf '%s\0' "$file"
      done
    return
  fi
  for glob in "$@"; do
    names+=(-o -path "*/${glob#/}")
  done
  (cd "$root" && find . -type d -name 'build*' -prune -o -type f \( "${names[@]:1}" \) -print0)
}

lintTypes() {
  cd runtime/python &&
    mypy --config-file "$root/setup.cfg" --cache-dir "$build/lint/mypy" --package pumpgraph
}

lintPython() {
  local files
  mapfile -t -d '' files < <(trackedFiles '*.py')
  flake8 --config "$root/setup.cfg" "${files[@]}"
}

# Those that tools/dev sources are looked into with it.
lintShell() {
  local files
  mapfile -t -d '' files < <(trackedFiles .ci/run tools/dev 'test/*.sh')
  shellcheck --external-sources --check-sourced "${files[@]}"
}

# The C++ files that differ from the last commit; if none does, those of the last commit.
changedSources() {
  [[ -e $root/.git ]] || return 0
  local git=(git -C "$root" -c safe.directory="$root") changed=()
  mapfile -t -d '' changed < <("${git[@]}" diff --name-only --diff-filter=d -z HEAD -- '*.cpp' 2>/dev/null)
  [[ ${#changed[@]} -gt 0 ]] ||
    mapfile -t -d '' changed < <("${git[@]}" diff --name-only --diff-filter=d -z HEAD~1 HEAD -- '*.cpp' 2>/dev/null)
  [[ ${#changed[@]} -eq 0 ]] || printf '%s\0' "${changed[@]}"
}

# Those of the files that the build folder compiles: compiledOnes FILES...
compiledOnes() {
  local file
  for file in "$@"; do
    ! grep -qF "\"$root/${file#./}\"" "$build/compile_commands.json" || printf '%s\0' "$file"
  done
}

lintCpp() {
  local files=() headers=() wanted
  if [[ $1 == all ]]; then
    mapfile -t -d '' wanted < <(trackedFiles '*.cpp')
  else
    mapfile -t -d '' wanted < <(changedSources)
    mapfile -t -d '' headers < <(trackedFiles 'runtime/include/*' 'passes/compiler/include/*')
    hasRuntime || headers=()
  fi
  mapfile -t -d '' files < <(compiledOnes "${wanted[@]}")
  if [[ $1 != all && ${#files[@]} -gt $mostChangedFiles ]]; then
    say "lint: the first $mostChangedFiles of ${#files[@]} changed C++ files; 'tools/dev lint --all' looks into every one"
    files=("${files[@]:0:mostChangedFiles}")
  fi
  local cccl=()
  mapfile -t cccl < <(sed -n 's/^PUMPGRAPH_CCCL_INCLUDE:PATH=\(\/.*\)/--extra-arg=-isystem\1/p' "$build/CMakeCache.txt")
  [[ ${#cccl[@]} -gt 0 || ${#headers[@]} -eq 0 ]] ||
    mapfile -t -d '' headers < <(printf '%s\0' "${headers[@]}" | grep -zv '/resource\.hpp$')
  # Headers that TableGen makes are there after a build.
  printf '%s\0' "${headers[@]}" "${files[@]}" |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy-22 -p "$build" "${cccl[@]}" --quiet --warnings-as-errors='*'
}

# Runs one part in the root, says how long it took, and adds it to `faulty` if it fails: lintPart NAME PROGRAM COMMAND...
lintPart() {
  local start=$SECONDS log=$build/lint/$1.log
  command -v "$2" >/dev/null || fail "no $2; 'tools/dev build' installs it"
  mkdir -p "$build/lint"
  if (cd "$root" && "${@:3}") >"$log" 2>&1 </dev/null; then
    grep '^lint: ' "$log" || true
    say "lint: $1: nothing found, $((SECONDS - start)) s"
    return
  fi
  faulty+=("$1")
  cat "$log" >&2
  say "lint: $1: the faults above, $((SECONDS - start)) s" >&2
}

runLint() {
  local sources=changed faulty=()
  if [[ ${1-} == --all ]]; then
    sources=all
    shift
  fi
  [[ $# -eq 0 ]] || fail "lint takes no arguments but --all: $*"
  lintPart types mypy lintTypes
  lintPart python flake8 lintPython
  lintPart shell shellcheck lintShell
  [[ -f $build/compile_commands.json ]] || installAndBuild
  lintPart c++ clang-tidy-22 lintCpp "$sources"
  [[ ${#faulty[@]} -eq 0 ]] || fail "lint: ${faulty[*]}"
}

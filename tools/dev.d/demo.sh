# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The main job, in the fullest form that this machine can do. Each part says how long it took.

hasTorch() { python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; }

# Trains the PyTorch example under a budget.
demoTorch() {
  say "demo: training docs/examples/pytorch/gpt2.py under a budget, because there is a GPU (${facts[device0_name]}) and PyTorch sees it"
  withPumpGraph python3 "$root/docs/examples/pytorch/gpt2.py"
}

demoCpp() {
  say "demo: training the C++ example under a budget, because there is a GPU (${facts[device0_name]}) and a CUDA toolkit, but no PyTorch that sees the GPU"
  "$build/bin/pumpgraph-example-transformer"
}

# Plans a recorded real step over a range of budgets: what can be done without a GPU.
demoRecorded() {
  local why=$1 step=$root/test/data/gpt2-355m.mlir.gz report=$build/demo/gpt2.html
  [[ -f $step ]] || fail "there is no recorded step at $step; a complete checkout has it"
  say "demo: planning the recorded GPT-2 training step over a range of budgets, because $why"
  mkdir -p "${report%/*}"
  "$build/bin/pump-graph-opt" "$step" --budget=50% --sweep=12 --plan-effort=low --report=text --report=html:"$report"
  [[ -s $report ]] || fail "pump-graph-opt wrote no report to $report"
  say "demo: the report is $report; open it in a browser"
}

showDemo() {
  if [[ ${facts[devices]} -eq 0 ]]; then
    demoRecorded "there is no GPU: ${facts[reason]}"
  elif ! hasRuntime; then
    demoRecorded "there is a GPU (${facts[device0_name]}) but no CUDA toolkit, so runtime/ was not built"
  elif hasTorch; then
    demoTorch
  elif [[ -x $build/bin/pumpgraph-example-transformer ]]; then
    demoCpp
  else
    demoRecorded "there is a GPU (${facts[device0_name]}) but neither PyTorch that sees it nor nvcc for the C++ example"
  fi
}

runDemo() {
  [[ $# -eq 0 ]] || fail "demo takes no arguments but --build-dir"
  local carried=""
  if isCarried; then
    carried=yes
    say "demo: using the binaries in $build as they are"
  else
    installMissing
  fi
  readDriverFacts
  if [[ -z $carried ]]; then
    local targets=()
    [[ ${facts[devices]} -gt 0 ]] || targets=(pump-graph-opt)
    buildAll "${targets[@]}"
  fi
  local start=$SECONDS
  showDemo
  say "demo: done in $((SECONDS - start)) s"
}

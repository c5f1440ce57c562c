# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The main job, in the fullest form that this machine can do.

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

runDemo() {
  [[ $# -eq 0 ]] || fail "demo takes no arguments but --build-dir"
  local carried=false
  if isCarried; then
    carried=true
    say "demo: using the binaries in $build as they are"
  else
    installMissing
  fi
  readDriverFacts
  if [[ ${facts[devices]} -eq 0 ]]; then
    $carried || buildAll pump-graph-opt
    demoRecorded "there is no GPU: ${facts[reason]}"
    return
  fi
  $carried || buildAll
  if ! hasRuntime; then
    demoRecorded "there is a GPU (${facts[device0_name]}) but no CUDA toolkit, so runtime/ was not built"
    return
  fi
  if hasTorch; then
    demoTorch
    return
  fi
  if [[ -x $build/bin/pumpgraph-example-transformer ]]; then
    demoCpp
    return
  fi
  demoRecorded "there is a GPU (${facts[device0_name]}) but neither PyTorch that sees it nor nvcc for the C++ example"
}

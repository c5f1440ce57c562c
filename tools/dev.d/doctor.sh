# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# What this machine offers. Says what it can before anything is installed or built.

# What libpumpgraph.so asks of the driver: "12040" in its source is "12.4" here.
oldestDriverApi() {
  sed -nE 's/.*oldestVersion = ([0-9]+)([0-9]{2})[0-9];.*/\1 \2/p' "$root/runtime/driver/Driver.h" |
    awk '{ printf "%d.%d", $1, $2 }'
}

versionAtLeast() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort --version-sort | head -n 1) == "$2" ]]; }

gib() { awk -v bytes="$1" 'BEGIN { printf "%.1f GiB", bytes / (1024 * 1024 * 1024) }'; }

row() { printf '%-18s %s\n' "$1" "$2"; }

# verdict WHAT REASON FIX: an empty reason means that it works.
verdict() {
  if [[ -z $2 ]]; then
    row "$1" "works"
    return
  fi
  row "$1" "will not work: $2"
  row "" "fix: $3"
}

memoryBytes() { awk -v key="$1:" '$1 == key { printf "%.0f", $2 * 1024 }' /proc/meminfo; }

# The smallest memory limit of this process's control group and those above it, in bytes; nothing if there is none.
controlGroupLimitBytes() {
  local group file limit smallest=""
  group=$(sed -n 's/^0:://p' /proc/self/cgroup 2>/dev/null || true)
  while true; do
    for file in "/sys/fs/cgroup$group/memory.max" "/sys/fs/cgroup/memory$group/memory.limit_in_bytes"; do
      limit=$(cat "$file" 2>/dev/null || true)
      # Version 1 writes "no limit" as a number near 2^63.
      [[ $limit =~ ^[0-9]{1,15}$ ]] || continue
      [[ -n $smallest && $smallest -le $limit ]] || smallest=$limit
    done
    [[ -n $group && $group != / ]] || break
    group=${group%/*}
  done
  printf '%s' "$smallest"
}

describeDriver() {
  local version
  version=$(sed -nE '1s/.* ([0-9]+\.[0-9.]+) .*/\1/p' /proc/driver/nvidia/version 2>/dev/null || true)
  if [[ -z ${facts[driver_api]-} ]]; then
    row driver "${facts[reason]}"
    return
  fi
  row driver "${version:-version unknown}, CUDA ${facts[driver_api]}${facts[reason]:+; ${facts[reason]}}"
  local i
  for ((i = 0; i < facts[devices]; i++)); do
    row "GPU $i" "${facts[device${i}_name]}, $(gib "${facts[device${i}_memory_bytes]}"), compute capability ${facts[device${i}_compute_major]}.${facts[device${i}_compute_minor]}"
    row "" "virtual memory: $(yesNo "${facts[device${i}_virtual_memory]}"); host memory in virtual ranges: $(yesNo "${facts[device${i}_host_numa_virtual_memory]}"); host NUMA node: ${facts[device${i}_host_numa_node]}"
  done
}

yesNo() { [[ $1 -ne 0 ]] && printf yes || printf no; }

describeHostMemory() {
  local available limit pinnable
  available=$(memoryBytes MemAvailable)
  limit=$(controlGroupLimitBytes)
  pinnable=$available
  [[ -z $limit || $limit -ge $pinnable ]] || pinnable=$limit
  row "host memory" "$(gib "$available") available of $(gib "$(memoryBytes MemTotal)"); control group limit: $(if [[ -n $limit ]]; then gib "$limit"; else printf none; fi)"
  local locked
  locked=$(ulimit -l)
  [[ $locked == unlimited ]] || locked+=" KiB"
  row "" "locked memory (ulimit -l): $locked; a session pins at most three quarters of what is free: $(gib $((pinnable * 3 / 4)))"
}

# Sets `nvcc`, `cudaHeader`: paths, or empty.
findToolkit() {
  local home
  nvcc=$(command -v nvcc || true)
  cudaHeader=""
  for home in "${CUDA_HOME-}" "${CUDA_PATH-}" "${nvcc:+$(dirname "$(dirname "$(readlink -f "${nvcc:-/}")")")}" /usr/local/cuda /usr; do
    [[ -n $home ]] || continue
    [[ -n $nvcc || ! -x $home/bin/nvcc ]] || nvcc=$home/bin/nvcc
    [[ -n $cudaHeader || ! -f $home/include/cuda.h ]] || cudaHeader=$home/include/cuda.h
  done
}

describeSoftware() {
  local version
  if [[ -n $nvcc ]]; then
    row "CUDA toolkit" "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p'), $nvcc"
  elif [[ -n $cudaHeader ]]; then
    row "CUDA toolkit" "headers only, $cudaHeader"
  else
    row "CUDA toolkit" "none"
  fi
  row "PyTorch" "${torchVersion:-none for python3}"
  version=$(dpkg-query --show --showformat='${Version}' libmlir-22-dev 2>/dev/null || true)
  row "LLVM and MLIR" "${version:-no libmlir-22-dev}"
  local missing=()
  ! command -v dpkg-query >/dev/null || mapfile -t missing < <(missingPackages)
  row "packages" "$([[ ${#missing[@]} -eq 0 ]] && printf 'all there' || printf 'missing: %s' "${missing[*]}")"
  local built=() file
  for file in bin/pump-graph-opt lib/libpumpgraph.so lib/libpumpgraph-compiler.so bin/pumpgraph-example-transformer; do
    [[ ! -e $build/$file ]] || built+=("$file")
  done
  row "built" "${built[*]:-nothing yet in $build}"
}

# The library's own word, which knows best what it needs; there is one only once it is built.
describeLibrary() {
  [[ -f $build/lib/libpumpgraph.so ]] && command -v python3 >/dev/null || return 0
  say ""
  say "libpumpgraph.so:"
  withPumpGraph python3 -c 'import pumpgraph
try:
    print(pumpgraph.doctor().rstrip())
except pumpgraph.PumpGraphError as error:  # such as a library of another version
    print(f"{error}; tools/dev build makes it anew")' 2>&1 | sed 's/^/  /' || true
}

judge() {
  local noBuild="" noRuntime="" noGpu="" unable=""
  local toolkitFix="install NVIDIA's CUDA toolkit, or set CUDA_HOME to where it is, then 'tools/dev build'"
  say ""
  if [[ ! -x $build/bin/pump-graph-opt ]] && command -v dpkg-query >/dev/null && [[ -n $(missingPackages) ]]; then
    noBuild="packages are missing"
  fi
  verdict "plan (no GPU)" "$noBuild" "on Debian 12 'tools/dev build' installs them, as root or through sudo"
  [[ -n $cudaHeader || -f $build/lib/libpumpgraph.so ]] || noRuntime="no cuda.h to build libpumpgraph.so with"
  verdict "build runtime/" "$noRuntime" "$toolkitFix"
  if [[ ${facts[devices]} -eq 0 ]]; then
    noGpu=${facts[reason]}
    verdict "run steps" "$noGpu" "$(driverFix)"
  else
    [[ ${facts[device0_virtual_memory]} -ne 0 ]] || unable="GPU 0 has no virtual memory management"
    versionAtLeast "${facts[driver_api]}" "$(oldestDriverApi)" || unable="the driver supports CUDA ${facts[driver_api]}, needed is $(oldestDriverApi)"
    verdict "run steps" "$unable" "install a newer NVIDIA driver; a virtual GPU may lack it whatever the driver"
  fi
  verdict "C++ example" "${noGpu:-$([[ -n $nvcc ]] || printf 'no nvcc')}" "$([[ -n $noGpu ]] && driverFix || printf '%s' "$toolkitFix")"
  if ! command -v python3 >/dev/null; then
    verdict "PyTorch" "python3 is missing" "install python3 and python3-venv, and torch in a virtual environment"
  elif [[ -z $torchVersion ]]; then
    verdict "PyTorch" "python3 has no torch" "python3 -m pip install torch (in a virtual environment), then run with that python3 first in PATH"
  else
    verdict "PyTorch" "$noGpu" "$(driverFix)"
  fi
}

driverFix() {
  case ${facts[reason]} in
    *libcuda.so.1*) printf "install NVIDIA's driver; in a container give it the GPU (docker run --gpus all)" ;;
    *"sees no GPU"* | *NO_DEVICE*) printf 'check nvidia-smi and CUDA_VISIBLE_DEVICES (now "%s")' "${CUDA_VISIBLE_DEVICES-unset}" ;;
    *python3*) printf 'install python3' ;;
    *) printf 'check nvidia-smi; a driver just updated needs a reboot' ;;
  esac
}

runDoctor() {
  readDriverFacts
  findToolkit
  torchVersion=$(python3 -c 'import torch; print(torch.__version__, "sees the GPU" if torch.cuda.is_available() else "sees no GPU", sep=", ")' 2>/dev/null || true)
  describeDriver
  describeHostMemory
  describeSoftware
  describeLibrary
  judge
}

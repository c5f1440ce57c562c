#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the plugin costs: user time of the device and host compiles of each source, with it and without, in turns."""
import argparse
import os
import resource
import statistics
import subprocess


def user_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run(command, check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plugin", required=True, help="libPumpGraphAnnotate.so")
    parser.add_argument("--clang", default="clang++-22")
    parser.add_argument("--cuda", default="/usr/local/cuda", help="CUDA toolkit")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--levels", default="O2,O0", help="optimisation levels")
    parser.add_argument("--pairs", type=int, default=5, help="runs with and without the plugin")
    parser.add_argument("sources", nargs="+")
    options = parser.parse_args()
    print("| source | level | without, s | with, s | overhead | lowest and highest pair |")
    print("| --- | --- | --- | --- | --- | --- |")
    for source in options.sources:
        for level in options.levels.split(","):
            command = [options.clang, "-std=c++20", f"-{level}", f"--cuda-path={options.cuda}",
                       f"--cuda-gpu-arch={options.arch}", "-Wno-unknown-cuda-version", "-w",
                       "-isystem", f"{options.cuda}/include/cccl", "-c", source, "-o", os.devnull]
            pairs = [(user_seconds(command), user_seconds([*command, f"-fplugin={options.plugin}"]))
                     for _ in range(options.pairs)]
            without, with_plugin = (statistics.median(side) for side in zip(*pairs))
            each = sorted(100 * (b / a - 1) for a, b in pairs)
            print(f"| {os.path.basename(source)} | -{level} | {without:.2f} | {with_plugin:.2f} | "
                  f"{statistics.median(each):+.1f} % | {each[0]:+.1f} %, {each[-1]:+.1f} % |", flush=True)


if __name__ == "__main__":
    main()

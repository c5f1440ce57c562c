# SPDX-License-Identifier: Apache-2.0
# lit's settings for the tests of the Clang plugin. ctest runs it with --param build=<build folder>, llvm=<folder of
# LLVM's tools>, clang=<clang++> and cuda=<CUDA toolkit>.
import os
import shutil
import sys

import lit.formats

param = lit_config.params
build = os.path.abspath(param["build"])
source = os.path.dirname(os.path.abspath(__file__))
repository = os.path.dirname(os.path.dirname(source))

config.name = "PumpGraph-clang-plugin"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".cu", ".test"]
config.excludes = ["Inputs", "corpus"]
config.test_source_root = source
config.test_exec_root = os.path.join(build, "test", "clang-plugin")
config.environment["PATH"] = os.pathsep.join([param["llvm"], os.environ["PATH"]])

plugin = os.path.join(build, "lib", "libPumpGraphAnnotate.so")
cuda = (
    f"--cuda-path={param['cuda']} -Wno-unknown-cuda-version -isystem {param['cuda']}/include/cccl "
    f"-isystem {param['cuda']}/include"
)
compiler = f"{param['clang']} -std=c++20 {cuda}"
printer = f"{sys.executable} {repository}/tools/clang-plugin/print_accesses.py"
config.substitutions += [
    # A compile with the plugin; without one.
    ("%annotate", f"{compiler} -fplugin={plugin} --cuda-gpu-arch=sm_90"),
    ("%plain", f"{compiler} --cuda-gpu-arch=sm_90"),
    # What the device compile found, as text; further options may follow.
    ("%accesses", f"{compiler} -fplugin={plugin} --cuda-gpu-arch=sm_90 --cuda-device-only -S -o /dev/null "
                  "-fplugin-arg-pumpgraph-json=-"),
    ("%print", printer),
    ("%plugin", plugin),
    ("%python", sys.executable),
    ("%repository", repository),
    ("%clang", shutil.which(param["clang"])),
    ("%cudalib", f"-L{param['cuda']}/lib64 -lcudart_static -ldl -lrt -lpthread"),
    ("%include", f"{repository}/runtime/include"),
    ("%cuda", param["cuda"]),
]
if os.path.exists(f"{param['cuda']}/bin/nvcc"):
    config.available_features.add("nvcc")
    config.environment["PATH"] += os.pathsep + f"{param['cuda']}/bin"
if os.path.exists(f"{param['cuda']}/bin/nvlink"):
    config.available_features.add("nvlink")
if shutil.which("clang++-14"):
    config.available_features.add("clang-14")

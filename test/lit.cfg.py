# SPDX-License-Identifier: Apache-2.0
# lit's settings. ctest runs it with --param build=<build folder> --param llvm=<folder of LLVM's tools>.
import os
import sys

import lit.formats

build = os.path.abspath(lit_config.params["build"])

config.name = "PumpGraph"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["Inputs", "data", "fuzz", "clang-plugin"]  # the last has settings of its own
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(build, "test")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(build, "bin"), lit_config.params["llvm"], os.environ["PATH"]]
)
config.substitutions.append(("%python", sys.executable))
config.substitutions.append(("%docs", os.path.join(os.path.dirname(config.test_source_root), "docs")))
config.substitutions.append(("%build", build))
config.substitutions.append(("%llvm_include", os.path.join(os.path.dirname(lit_config.params["llvm"]), "include")))

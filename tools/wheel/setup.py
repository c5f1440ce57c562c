# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: binaries that any Python 3 can use, for one processor and any glibc from 2.35 on.
build_wheel.py lays out the folder in which this runs, and says the version."""

import os
import platform

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class HasBinaries(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    def get_tag(self):
        return "py3", "none", f"manylinux_2_35_{platform.machine()}"


setup(version=os.environ["PUMPGRAPH_VERSION"], distclass=HasBinaries, cmdclass={"bdist_wheel": AnyPython})

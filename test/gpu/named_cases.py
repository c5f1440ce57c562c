# SPDX-License-Identifier: Apache-2.0
"""What programs of GPU cases have in common that run one case a process."""

import re
import sys


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def raises(kind, pattern, call):
    try:
        call()
    except kind as error:
        check(re.search(pattern, str(error)), f"another error: {error}")
        return
    raise AssertionError(f"no {kind.__name__} that says {pattern}")


def run_named(cases):
    """The case that the command line names. A check that fails is the process's last word."""
    case = {case.__name__: case for case in cases}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if case is None:
        sys.exit(f"usage: {sys.argv[0]} CASE; cases: {', '.join(case.__name__ for case in cases)}")
    try:
        case()
    except AssertionError as error:
        sys.exit(f"{case.__name__}: {error}")

# SPDX-License-Identifier: Apache-2.0
"""Linear-programming bounds of the rows whose plans run nothing again, from the recorded steps. Needs no GPU, but
SciPy."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Sequence, Tuple

from outside import read_json
from sentinel_table import Rows
from sentinels import Done, Sentinel, row_key


def missing_bounds(
    chosen: Sequence[Sentinel],
    done: Done,
    steps: Dict[str, Path],
    tool: Path,
    say: Callable[[str], None],
) -> Iterator[Tuple[str, Dict[str, Any]]]:
    """Keys and figures of the bounds that can be computed and have not been. `steps` is what was recorded, by name."""
    for sentinel in chosen:
        step, rows = steps[sentinel.name], Rows(sentinel, done)
        for budget in sentinel.budgets:
            key = row_key(sentinel, "bounds", budget, 0)
            kind = rows.kind_of_moves(budget)
            if kind is None or "error" not in done.get(key, {"error": "not computed"}):
                continue
            if not step.is_file():
                say(f"{key}: there is no recorded step {step}\n")
                continue
            say(f"{key} ...")
            start = time.monotonic()
            figures = compute(step, rows.report(budget, kind), tool)
            say(f" {figures.get('error') or format(figures['lp_may_s'] * 1e3, '.1f') + ' ms'}, "
                f"{time.monotonic() - start:.0f} s\n")
            yield key, figures


def compute(step: Path, report: Dict[str, Any], tool: Path) -> Dict[str, Any]:
    """Bounds at the budget and on the link that the row's own plan was made for."""
    import lp_bound  # needs SciPy, which only this phase does

    try:
        exported = export(step, report, tool)
        may = lp_bound.solve(exported, report["budget_bytes"], report["machine"], "may")
    except (OSError, RuntimeError, ValueError) as problem:
        return {"error": str(problem)}
    figures = {"lp_may_s": may.seconds}
    if may.proposal.step.may_host and "hosted_share" in report["machine"]:
        with contextlib.suppress(RuntimeError):  # of the solver
            hosting_s = lp_bound.lp_bound(exported, report["budget_bytes"], report["machine"], "predicted")
            figures["lp_predicted_s"] = hosting_s
    return figures


def export(step: Path, report: Dict[str, Any], tool: Path) -> Dict[str, Any]:
    """The recorded step as JSON (docs/reference/report.md). A plan comes with it, which the bound does not look at."""
    machine = report["machine"]
    links = {name: machine[f"{name}_bytes_per_second"] / 1e9 for name in ("up", "down", "both")}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "plan.json"
        command = [str(tool), str(step), f"--budget={report['budget_bytes']}B", f"--report=plan:{output}"]
        command += [f"--{name}={value!r}" for name, value in links.items()]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(f"{tool.name}: {result.stderr.strip()}")
        return read_json(output.read_text())

# SPDX-License-Identifier: Apache-2.0
"""Results that are kept in the repository: of every row what the tables read, one JSON line each. A row is compared
with what was measured beside it when it is kept, because rows of other days may replace that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, Sequence

import runs
from sentinel_table import STALLS_NAMED, compare_losses, predicted_again_ms, transfer_ms
from sentinels import Done, Sentinel, row_key

Figures = Dict[str, Any]

_FIGURES = (
    "error", "out_of_memory", "refused", "step_ms", "peak_bytes", "budget_bytes", "blocks", "blocks_in_all",
    "captured", "replan_failed", "lp_may_s", "lp_predicted_s", "losses_compared", "rounded",
)
_REPORT = ("plan_bound_s", "predicted_s", "transfer_s", "repeated")
_REPLANNED = ("measured_before_us", "predicted_before_us", "kept_first")


def keep(done: Done, chosen: Sequence[Sentinel], file: Path) -> None:
    """Puts the rows of the chosen sentinels into the file."""
    by_name = {sentinel.name: sentinel for sentinel in chosen}
    put(file, {key: _of_row(key, figures, by_name[key.split("/")[0]], done) for key, figures in done.items()
               if key.split("/")[0] in by_name and key.split("/")[1] != "record"})


def put(file: Path, new: Done) -> None:
    """All runs of a row replace all that the file has of it, but a failure replaces no result."""
    kept = runs.load(file)
    results = {_row(key) for key, figures in kept.items() if "error" not in figures}
    new = {key: figures for key, figures in new.items() if "error" not in figures or _row(key) not in results}
    replaced = {_row(key) for key in new}
    kept = {key: figures for key, figures in kept.items() if _row(key) not in replaced}
    rows = sorted({**kept, **new}.items())
    file.write_text("".join(json.dumps({"key": key, "figures": figures}) + "\n" for key, figures in rows))


def are_kept(done: Done) -> bool:
    """Such rows cannot be compared with what is measured beside them now."""
    return any("losses_compared" in figures for figures in done.values())


def _row(key: str) -> str:
    """All its runs."""
    return key.rsplit("/", 1)[0]


def _of_row(key: str, figures: Figures, sentinel: Sentinel, done: Done) -> Figures:
    kept = only(_FIGURES, figures)
    if "losses" in figures:
        if sentinel.micro_batches:
            kept["losses"] = figures["losses"]  # how far they are apart is what the table says of them
        else:
            kept["losses_compared"] = compare_losses(figures, _unmodified(key, sentinel, done))._asdict()
    if "replanned" in figures:
        kept["replanned"] = only(_REPLANNED, figures["replanned"])
    if "report" in figures:
        kept["report"] = _of_report(figures["report"])
    return kept


def _unmodified(key: str, sentinel: Sentinel, done: Done) -> Figures:
    figures = done.get(row_key(sentinel, "plain", None, 0), {})
    if "losses" not in figures:
        raise ValueError(f"{key}: no plain row was measured beside it to compare its losses with")
    return figures


def _of_report(report: Figures) -> Figures:
    kept = only(_REPORT, report)
    transfer = transfer_ms(report)
    if transfer is not None:
        kept["transfer_s"] = transfer / 1e3
    again = predicted_again_ms(report)
    if again is not None:
        kept["predicted_again_s"] = again / 1e3
    stalls = (report.get("stalls") or [])[:STALLS_NAMED]
    kept["stalls"] = [only(("buffer_name", "duration_s"), stall) for stall in stalls]
    return kept


def only(names: Sequence[str], figures: Figures) -> Figures:
    return {name: figures[name] for name in names if name in figures}

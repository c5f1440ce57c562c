# SPDX-License-Identifier: Apache-2.0
"""Step time over the step in memory, a group of bars for each sentinel: one SVG without anything outside it."""

from __future__ import annotations

import math
from typing import Callable, List, Optional, Sequence
from xml.sax.saxutils import escape

from sentinel_table import Rows, slower_than_promised
from sentinels import Budget, Done, Sentinel

Height = Callable[[float], float]  # the y of a ratio

WIDTH, LEFT, TOP, PLOT_HEIGHT, BOTTOM = 960, 56, 66, 300, 84
RIGHT = WIDTH - 16
WIDEST_BAR, SOLID_SHARE = 19, 0.5
LEVELS = (1, 1.1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
CLOSEST_LEVELS = 16
STYLE = """svg{--surface:#fff;--ink:#1b2028;--muted:#5a6472;--grid:#e4e8ed;--bar:#1f5fd0;--over:#c2452d}
@media(prefers-color-scheme:dark){
svg{--surface:#12161c;--ink:#e8ebf0;--muted:#9aa5b4;--grid:#2a313b;--bar:#72a9ff;--over:#ff8a70}}
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--ink)}
.muted{fill:var(--muted)}.title{font-size:14px;font-weight:600}
.grid{stroke:var(--grid)}.memory{stroke:var(--ink)}.checkpoint{stroke:var(--ink);stroke-width:2}
.bar{fill:var(--bar)}.over{fill:var(--over)}.moves{fill-opacity:.3}"""
LEGEND = ("pale: moves alone; solid: everything on, kernels may run again; tick: checkpointing, where it reaches the "
          "budget; red: slower than promised")


def svg(chosen: Sequence[Sentinel], done: Done) -> str:
    """Bars start at the step in memory, 1; those slower than promised have another colour. The scale is logarithmic:
    moves alone take several times as long as what lies close to 1."""
    every = [Rows(sentinel, done) for sentinel in chosen if not sentinel.micro_batches]
    ratios = [ratio for rows in every for budget in rows.sentinel.budgets
              for ratio in (_ratio(rows, budget, kind) for kind in ("moves", "budget", "checkpoint")) if ratio]
    top = 1.1 * max(ratios, default=1.1)
    height = TOP + PLOT_HEIGHT + BOTTOM

    def y_of(ratio: float) -> float:
        return TOP + PLOT_HEIGHT * (1 - math.log(ratio) / math.log(top))

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="step time over the step in memory">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="var(--surface)"/>',
        f'<text class="title" x="{LEFT}" y="24">step time / step in memory, logarithmic</text>',
        f'<text class="muted" x="{LEFT}" y="44">{LEGEND}</text>',
    ]
    lines += _axis(top, y_of)
    group_width = (RIGHT - LEFT) / max(1, len(every))
    for index, rows in enumerate(every):
        lines += _group(rows, LEFT + index * group_width, group_width, y_of)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _ratio(rows: Rows, budget: Budget, kind: str) -> Optional[float]:
    """None where nothing was measured, or checkpointing exceeds the budget."""
    step, native = rows.step_ms(kind, budget), rows.step_ms("plain")
    if not step or not native or kind == "checkpoint" and not rows.reaches(budget):
        return None
    return max(1.0, step / native)


def _axis(top: float, y_of: Height) -> List[str]:
    lines: List[str] = []
    last = math.inf
    for level in LEVELS:
        y = y_of(level)
        if level > top or last - y < CLOSEST_LEVELS:
            continue
        last = y
        kind = "memory" if level == 1 else "grid"
        lines.append(f'<line class="{kind}" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="muted" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{level:g}</text>')
    return lines


def _group(rows: Rows, left: float, width: float, y_of: Height) -> List[str]:
    base, middle, budgets = y_of(1.0), left + width / 2, rows.sentinel.budgets
    slot = min(WIDEST_BAR, 0.9 * width / max(1, len(budgets)))
    lines = []
    for index, budget in enumerate(budgets):
        center = middle + (index + 0.5 - len(budgets) / 2) * slot
        marks = _marks(rows, budget, center, slot - 2, y_of)
        lines += marks
        lines.append(_upright(budget.title if marks else f"{budget.title}: -", center + 4, base + 8))
    lines.append(f'<text x="{middle:.1f}" y="{base + 66:.1f}" text-anchor="middle">{escape(rows.sentinel.name)}</text>')
    return lines


def _marks(rows: Rows, budget: Budget, center: float, width: float, y_of: Height) -> List[str]:
    """Of one budget: the pale bar, the solid one inside it, and the tick, as far as they were measured."""
    base, row = y_of(1.0), f"{rows.sentinel.name} at {budget.title}"
    lines = []
    for kind, style, name, share in (("moves", "bar moves", ", moves alone", 1), ("budget", "bar", "", SOLID_SHARE)):
        ratio = _ratio(rows, budget, kind)
        if ratio is None:
            continue
        height, over = max(1.0, base - y_of(ratio)), " over" if slower_than_promised(rows, budget, kind) else ""
        lines.append(f'<rect class="{style}{over}" x="{center - share * width / 2:.1f}" y="{base - height:.1f}" '
                     f'width="{share * width:.1f}" height="{height:.1f}">'
                     f"<title>{escape(f'{row}{name}: {ratio:.2f}')}</title></rect>")
    ratio = _ratio(rows, budget, "checkpoint")
    if ratio is not None:
        lines.append(f'<line class="checkpoint" x1="{center - width / 2:.1f}" x2="{center + width / 2:.1f}" '
                     f'y1="{y_of(ratio):.1f}" y2="{y_of(ratio):.1f}">'
                     f"<title>{escape(f'{row}, checkpointing: {ratio:.2f}')}</title></line>")
    return lines


def _upright(text: str, x: float, y: float) -> str:
    turned = f"rotate(-90 {x:.1f} {y:.1f})"
    return f'<text class="muted" x="{x:.1f}" y="{y:.1f}" text-anchor="end" transform="{turned}">{escape(text)}</text>'

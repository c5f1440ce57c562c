# SPDX-License-Identifier: Apache-2.0
"""Step time over best bound, a group of bars for each sentinel: one SVG without anything outside it."""

from __future__ import annotations

from typing import Callable, List, Sequence, Tuple
from xml.sax.saxutils import escape

from sentinel_table import MOST_OVER_BOUND, Rows
from sentinels import Budget, Done, Sentinel

Height = Callable[[float], float]  # the y of a ratio

WIDTH, LEFT, TOP, PLOT_HEIGHT, BOTTOM = 960, 56, 44, 280, 84
RIGHT = WIDTH - 16
WIDEST_BAR = 19
STYLE = """svg{--surface:#fff;--ink:#1b2028;--muted:#5a6472;--grid:#e4e8ed;--bar:#1f5fd0;--over:#c2452d}
@media(prefers-color-scheme:dark){
svg{--surface:#12161c;--ink:#e8ebf0;--muted:#9aa5b4;--grid:#2a313b;--bar:#72a9ff;--over:#ff8a70}}
text{font:12px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--ink)}
.muted{fill:var(--muted)}.title{font-size:14px;font-weight:600}
.grid{stroke:var(--grid)}.bound{stroke:var(--ink)}.allowed{stroke:var(--muted);stroke-dasharray:4 3}
.bar{fill:var(--bar)}.over{fill:var(--over)}"""


def svg(chosen: Sequence[Sentinel], done: Done) -> str:
    """Bars start at the bound, 1; those over what is allowed have another colour."""
    every = [Rows(sentinel, done) for sentinel in chosen if not sentinel.micro_batches]
    bars = {
        rows.sentinel.name: [(budget.title, _ratio(rows, budget)) for budget in rows.sentinel.budgets] for rows in every
    }
    highest = max([ratio for group in bars.values() for _, ratio in group if ratio], default=1.0)
    top = max(1.1, 1 + 1.1 * (highest - 1))
    height = TOP + PLOT_HEIGHT + BOTTOM

    def y_of(ratio: float) -> float:
        return TOP + PLOT_HEIGHT * (top - ratio) / (top - 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="step time over best bound">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="var(--surface)"/>',
        f'<text class="title" x="{LEFT}" y="24">step time / best bound</text>',
        f'<text class="muted" x="{RIGHT}" y="24" text-anchor="end">dashed: what is allowed, {MOST_OVER_BOUND}</text>',
    ]
    lines += _axis(top, y_of)
    group_width = (RIGHT - LEFT) / max(1, len(every))
    for index, rows in enumerate(every):
        lines += _group(rows.sentinel.name, bars[rows.sentinel.name], LEFT + index * group_width, group_width, y_of)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _ratio(rows: Rows, budget: Budget) -> float:
    """0 where nothing was measured."""
    step, bound = rows.step_ms("budget", budget), rows.best_bound_ms(budget)
    return step / bound if step and bound else 0.0


def _axis(top: float, y_of: Height) -> List[str]:
    step = next(candidate for candidate in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 1e9) if (top - 1) / candidate <= 8)
    lines = []
    for index in range(int((top - 1) / step) + 1):
        ratio = 1 + index * step
        kind = "bound" if index == 0 else "grid"
        y = y_of(ratio)
        lines.append(_level(kind, y))
        lines.append(f'<text class="muted" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{ratio:.2f}</text>')
    return [*lines, _level("allowed", y_of(MOST_OVER_BOUND))]


def _level(kind: str, y: float) -> str:
    return f'<line class="{kind}" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _group(name: str, bars: List[Tuple[str, float]], left: float, width: float, y_of: Height) -> List[str]:
    base, middle = y_of(1.0), left + width / 2
    slot = min(WIDEST_BAR, 0.9 * width / max(1, len(bars)))
    lines = []
    for index, (title, ratio) in enumerate(bars):
        x = middle + (index - len(bars) / 2) * slot
        if ratio:
            y = min(y_of(ratio), base)  # a step below its bound has no bar: the promises speak of it
            kind = "bar" if ratio <= MOST_OVER_BOUND else "bar over"
            hint = escape(f"{name} at {title}: {ratio:.2f}")
            lines.append(f'<rect class="{kind}" x="{x + 1:.1f}" y="{y:.1f}" width="{max(1.0, slot - 2):.1f}" '
                         f'height="{base - y:.1f}"><title>{hint}</title></rect>')
        lines.append(_upright(title if ratio else f"{title}: -", x + slot / 2 + 4, base + 8))
    lines.append(f'<text x="{middle:.1f}" y="{base + 66:.1f}" text-anchor="middle">{escape(name)}</text>')
    return lines


def _upright(text: str, x: float, y: float) -> str:
    turned = f"rotate(-90 {x:.1f} {y:.1f})"
    return f'<text class="muted" x="{x:.1f}" y="{y:.1f}" text-anchor="end" transform="{turned}">{escape(text)}</text>'

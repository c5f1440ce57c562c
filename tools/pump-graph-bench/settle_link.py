# SPDX-License-Identifier: Apache-2.0
"""Opens sessions until what they have measured of the link is settled (docs/reference/report.md), so that every row
after it is planned with the same figures, and held against the same bound. Needs a GPU, and no PyTorch."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "runtime" / "python"))

from pumpgraph import _capi  # noqa: E402
from pumpgraph._session import Session, user_cache  # noqa: E402

SESSIONS = 5  # wantedMeasurements in runtime/link/Link.h
BUDGET_BYTES = 256 << 20


def main() -> int:
    library = _capi.load()
    for _ in range(SESSIONS):
        Session(library, BUDGET_BYTES, cache_directory=user_cache()).close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Prints a trace of 49 kernels of which two have nearly all of the time, as one that was damaged when it was
recorded."""
import json

KERNELS, LONG = 49, (7, 30)
tensors = [{"id": n, "name": f"t{n}", "bytes": 4 << 20, "kind": "intermediate"} for n in range(KERNELS)]
kernels = [{"id": n, "name": f"k{n}", "time_us": 50_000.0 if n in LONG else 20.0, "reads": [n - 1] if n else [],
            "writes": [n]} for n in range(KERNELS)]
print(json.dumps({"name": "damaged", "tensors": tensors, "kernels": kernels}))

# SPDX-License-Identifier: Apache-2.0
"""Steps as IR, made up kernel by kernel."""

MIB = 1 << 20


class Step:
    """Collects buffers and kernels; every kernel follows the one before it, as on one stream."""

    def __init__(self, name, knows_costs):
        self.name = name
        self.knows_costs = knows_costs
        self.buffers = []
        self.kernels = []

    def buffer(self, name, mib, persistent=False):
        """Returns what kernel() takes: the buffer, and its size in bytes."""
        size = round(mib * MIB)
        facts = "private live_in live_out" if persistent else "private"
        value = f"%b{len(self.buffers)}"
        self.buffers.append(f'{value} = pump.buffer "{name}" {facts} size({size})')
        return value, size

    def kernel(self, name, microseconds, reads, writes, updates=()):
        number = len(self.kernels)
        accesses = [f"read {value}[0, {size}] declared" for value, size in reads]
        accesses += [f"write {value}[0, {size}] declared must(write)" for value, size in writes]
        accesses += [f"readwrite {value}[0, {size}] declared" for value, size in updates]
        after = f" after(%k{number - 1})" if number else ""
        cost = f" cost({microseconds:.1f})" if self.knows_costs else ""
        self.kernels.append(f'%k{number} = pump.kernel "{name}" node({number}){after} [{", ".join(accesses)}]{cost}')

    def write(self):
        lines = [f"pump.graph @{self.name} {{"]
        lines += [f"  {text}" for text in self.buffers]
        lines += [f"  {kernel}" for kernel in self.kernels]
        return "\n".join(lines + ["}"])

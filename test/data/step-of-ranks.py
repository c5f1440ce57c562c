#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the step of one of RANKS ranks as IR, made from the step of one device: collectives are put in, with the time
that they would take.

The step ends with the kernels of a fused Adam, which name weights, gradients and both moments in this order. With "ddp"
buckets of gradients are reduced once their last gradient is there. With "fsdp" weights and moments are shards: the
weights of a block are gathered ahead of its forward and of its backward pass, one block early, and its gradients are
reduced to shards. Collectives follow one another on a stream of their own.

    step-of-ranks.py STEP ddp|fsdp RANKS [--bus=GB/s]
"""

import argparse
import gzip
import re
from typing import NamedTuple

BUCKET_BYTES = 25 << 20  # DDP's default
LATENCY_US = 25.0
SMALL_BYTES = 1 << 20  # smaller tensors are neither gathered nor reduced: their collectives take no time that counts


class Access(NamedTuple):
    kind: str
    buffer: str
    offset: int
    size: int
    rest: str

    def __str__(self):
        return f"{self.kind} {self.buffer}[{self.offset}, {self.size}]{self.rest}"


class Buffer:
    def __init__(self, value, name, facts, size):
        self.value, self.name, self.facts, self.size = value, name, facts, size

    def __str__(self):
        return f'{self.value} = pump.buffer "{self.name}" {self.facts} size({self.size})'


class Node:
    def __init__(self, value, what, after, accesses, rest, cost):
        self.value, self.what, self.after = value, what, after
        self.accesses, self.rest, self.cost = accesses, rest, cost

    def text(self, number):
        after = f" after({', '.join(self.after)})" if self.after else ""
        return (f"{self.value} = {self.what} node({number}){after} [{', '.join(map(str, self.accesses))}]"
                f"{self.rest} cost({self.cost})")


BUFFER = re.compile(r'  (%\S+) = pump\.buffer "([^"]*)" (.*?)\s*size\((\d+)\)')
NODE = re.compile(r'  (%\S+) = (pump\.\w+ "[^"]*") node\(\d+\)(?: after\((.*?)\))? \[(.*)\]([^\]]*) cost\((.*?)\)$')
ACCESS = re.compile(r"(\w+) (%\S+)\[(\d+), (\d+)\]((?: [\w()]+)*)")


class Step:
    def __init__(self, text):
        lines = text.splitlines()
        self.head = lines[0]
        self.buffers, self.nodes = {}, []
        for line in lines[1:]:
            if buffer := BUFFER.match(line):
                self.buffers[buffer[1]] = Buffer(*buffer.groups()[:3], int(buffer[4]))
            elif node := NODE.match(line):
                accesses = [Access(kind, name, int(offset), int(size), rest)
                            for kind, name, offset, size, rest in ACCESS.findall(node[4])]
                after = node[3].split(", ") if node[3] else []
                self.nodes.append(Node(node[1], node[2], after, accesses, node[5], float(node[6])))
            elif line != "}":
                raise ValueError(f"a line of another form: {line[:120]}")
        self.updates = [node for node in self.nodes if "adam" in node.what]

    def add_buffer(self, name, size):
        value = f"%x{len(self.buffers)}"
        self.buffers[value] = Buffer(value, name, "private", size)
        return value

    def users(self, buffers):
        """Positions of the nodes ahead of the updates that touch one of them."""
        return [at for at, node in enumerate(self.nodes) if node not in self.updates
                and any(access.buffer in buffers for access in node.accesses)]

    def parameters(self):
        """Weight, gradient and both moments of each, as buffers."""
        found = {}
        for node in self.updates:
            large = [access.buffer for access in node.accesses if access.size >= SMALL_BYTES and access.offset == 0]
            count = len(large) // 4
            for each in zip(*(large[part * count:(part + 1) * count] for part in range(4))):
                found[each[0]] = each
        return list(found.values())

    def text(self):
        lines = [self.head, *(f"  {buffer}" for buffer in self.buffers.values())]
        return "\n".join([*lines, *(f"  {node.text(number)}" for number, node in enumerate(self.nodes)), "}"])


class Collectives:
    """Collectives to put in: each comes after the one before it, and before the nodes that use its results."""

    def __init__(self, step, ranks, bus):
        self.step, self.ranks, self.bus = step, ranks, bus
        self.put = []  # position, node, positions of those that wait for it

    def add(self, kind, at, after, accesses, size, passes, waiting):
        value = f"%c{len(self.put)}"
        cost = LATENCY_US + passes * size * (self.ranks - 1) / self.ranks / (self.bus * 1e3)
        what = f'pump.kernel "ncclDevKernel_{kind}"'
        node = Node(value, what, [after] if after else [], accesses, "", round(cost, 2))
        self.put.append((at, node, [self.step.nodes[position] for position in waiting]))

    def insert(self):
        self.put.sort(key=lambda each: each[0])
        for index, (_, node, waiting) in enumerate(self.put):
            if index:
                node.after.append(self.put[index - 1][1].value)
            for user in waiting:
                user.after.append(node.value)
        for at, node, _ in reversed(self.put):
            self.step.nodes.insert(at, node)


def whole(kind, buffer, size):
    return Access(kind, buffer, 0, size, " declared must(write)" if kind == "write" else " declared")


def reduce_gradients(step, collectives):
    """As DDP does, by buckets, in the order in which gradients come to be."""
    written = sorted((step.users({gradient})[-1], gradient) for _, gradient, _, _ in step.parameters())
    first_update = step.nodes.index(step.updates[0])
    bucket = []
    for index, (at, gradient) in enumerate(written):
        bucket.append(gradient)
        size = sum(step.buffers[each].size for each in bucket)
        if size >= BUCKET_BYTES or index + 1 == len(written):
            accesses = [whole("readwrite", each, step.buffers[each].size) for each in bucket]
            collectives.add("AllReduce", at + 1, step.nodes[at].value, accesses, size, 2, [first_update])
            bucket = []


def units_of(parameters, step):
    units = {}
    for each in parameters:
        block = re.match(r"blocks\.\d+", step.buffers[each[0]].name)
        units.setdefault(block[0] if block else "root", []).append(each)
    return units


def passes_of(positions):
    """The forward and the backward pass, between which is the largest gap."""
    gaps = [(after - before, index) for index, (before, after) in enumerate(zip(positions, positions[1:]), 1)]
    cut = max(gaps)[1]
    return positions[:cut], positions[cut:]


def shard(step, collectives):
    ranks, parameters = collectives.ranks, step.parameters()
    first_update = step.nodes.index(step.updates[0])
    gathers = []  # by pass of a unit: positions of its nodes, and its weights
    for unit, members in units_of(parameters, step).items():
        weights = [each[0] for each in members]
        positions = step.users(set(weights))
        for name, users in zip(("forward", "backward"), passes_of(positions)) if unit != "root" else [("", positions)]:
            gathers.append((users, [(weight, step.add_buffer(f"{unit}.{name}.{index}", step.buffers[weight].size))
                                    for index, weight in enumerate(weights)]))
    gathers.sort(key=lambda each: each[0][0])
    for index, (users, pairs) in enumerate(gathers):
        at = gathers[index - 1][0][0] if index else 0  # with the nodes of the one before
        size = sum(step.buffers[weight].size for weight, _ in pairs)
        accesses = [whole("read", weight, step.buffers[weight].size // ranks) for weight, _ in pairs]
        accesses += [whole("write", full, step.buffers[full].size) for _, full in pairs]
        collectives.add("AllGather", at, step.nodes[at - 1].value if at else None, accesses, size, 1, users[:1])
        renamed = dict(pairs)
        for position in users:
            node = step.nodes[position]
            node.accesses = [access._replace(buffer=renamed.get(access.buffer, access.buffer))
                             for access in node.accesses]
    shards = {}
    for unit, members in units_of(parameters, step).items():
        at = max(step.users({gradient})[-1] for _, gradient, _, _ in members)
        sizes = {gradient: step.buffers[gradient].size for _, gradient, _, _ in members}
        for gradient, size in sizes.items():
            shards[gradient] = step.add_buffer(f"{unit}.gradient", size // ranks)
        accesses = [whole("read", gradient, size) for gradient, size in sizes.items()]
        accesses += [whole("write", shards[gradient], size // ranks) for gradient, size in sizes.items()]
        collectives.add("ReduceScatter", at + 1, step.nodes[at].value, accesses, sum(sizes.values()), 1, [first_update])
    kept = {buffer for weight, _, first, second in parameters for buffer in (weight, first, second)}
    for buffer in kept:
        step.buffers[buffer].size //= ranks
    for node in step.updates:
        node.cost = round(node.cost / ranks, 2)
        node.accesses = [access._replace(buffer=shards.get(access.buffer, access.buffer), size=access.size // ranks)
                         if access.buffer in kept or access.buffer in shards else access for access in node.accesses]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", help="IR, gzipped or not")
    parser.add_argument("module", choices=("ddp", "fsdp"))
    parser.add_argument("ranks", type=int)
    parser.add_argument("--bus", type=float, default=200.0, metavar="GB/s", help="bus bandwidth of the collectives")
    arguments = parser.parse_args()
    opened = gzip.open if arguments.step.endswith(".gz") else open
    with opened(arguments.step, "rt") as file:
        step = Step(file.read())
    collectives = Collectives(step, arguments.ranks, arguments.bus)
    (reduce_gradients if arguments.module == "ddp" else shard)(step, collectives)
    collectives.insert()
    print(step.text())


if __name__ == "__main__":
    main()

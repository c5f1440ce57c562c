# SPDX-License-Identifier: Apache-2.0
"""Keeps the examples of the documentation true.

  doc_examples.py parse FILE.md OPS.td        every ```mlir block is valid IR, and every op of OPS.td is in one of them
  doc_examples.py transform FILE.md           "Before:" run through the pipeline of "After `...`:" gives what follows
  doc_examples.py passes Passes.md            prints the reference of the passes, without the options, which --help has
  doc_examples.py words FILE.md SYNTAX.cpp    every word that the syntax has for a value of an enum is in the text
  doc_examples.py ops FILE.md OPS.json        prints the reference of the IR with its lists made anew from what
                                              `llvm-tblgen --dump-json` says of the ops
"""
import json
import pathlib
import re
import subprocess
import sys
import textwrap

WIDTH = 120
BLOCK = r"```mlir\n(.*?)```"
OPTIONS = r"\n#### Options\n\n```\n(?:-.*\n)*```\n"
LIST = re.compile(r"(<!-- PumpOps.td: (\w+ \w+) -->\n\n)(?:[* ] .*\n)*")
PAIR = r"Before:\n\n?" + BLOCK + r"\n+After `([^`]+)`:\n\n?" + BLOCK


def run(source, *options):
    """The IR after pump-graph-opt, as text in its one standard form."""
    done = subprocess.run(["pump-graph-opt", *options], input=source, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stderr}\nin this example:\n{source}")
    return done.stdout


def parse(document, definitions):
    examples = re.findall(BLOCK, document, re.DOTALL)
    for example in examples:
        run(example)
    shown = set(re.findall(r"\bpump\.(\w+)", "\n".join(examples)))
    defined = set(re.findall(r'Pump_\w*Op<"(\w+)"', definitions))
    if not defined:
        sys.exit("found no op definitions")
    if defined - shown:
        sys.exit(f"ops without an example: {', '.join(sorted(defined - shown))}")


def transform(document):
    pairs = re.findall(PAIR, document, re.DOTALL)
    if len(pairs) != document.count("Before:"):
        sys.exit(f"{document.count('Before:')} examples begin, {len(pairs)} can be read")
    for before, pipeline, after in pairs:
        actual = run(before, f"--pass-pipeline=builtin.module(pump.graph({pipeline}))")
        if actual != run(after):
            sys.exit(f"{pipeline} gives\n{actual}\nthe documentation says\n{after}")


def passes(generated):
    first, rest = re.sub(OPTIONS, "", generated).split("\n", 1)
    print(f"{first}\n\n`pump-graph-opt --help` lists the options of each pass.\n{rest}", end="")


def words(document, syntax):
    tables = re.findall(r"StringLiteral, \d+> \w+Words = \{([^}]*)\}", syntax)
    spelled = set(re.findall(r'"(\w+)"', " ".join(tables))) - {"nothing", "none"}  # which stand in no file
    if len(tables) < 4:
        sys.exit("found no words in the syntax")
    missing = {word for word in spelled if f"`{word}`" not in document}
    if missing:
        sys.exit(f"words that the reference does not name: {', '.join(sorted(missing))}")


class Definitions:
    """The ops of PumpOps.td, by group: graph, buffer, captured, added."""

    def __init__(self, records):
        self.records = records
        named = {"captured": "Pump_CapturedOp", "added": "Pump_AddedOp"}
        groups = {group: [records[op] for op in records["!instanceof"][of]] for group, of in named.items()}
        grouped = {op["opName"] for ops in groups.values() for op in ops}
        alone = [records[op] for op in records["!instanceof"]["Op"] if records[op]["opName"] not in grouped]
        self.groups = {**groups, **{op["opName"]: [op] for op in alone}}
        self.shown = set()

    def clauses(self, op):
        """Of each argument its name, its clause and the meaning of that. Sizes stand in the clause of their offsets."""
        found = []
        names = {name for _, name in op["arguments"]["args"]}
        for argument, name in op["arguments"]["args"]:
            record = self.records[argument["def"]]
            clause, colon, meaning = record.get("summary", "").partition(": ")
            if "Arg" in record["!superclasses"] and colon:
                found.append((name, clause, meaning))
            elif name.replace("size", "offset") not in names - {name}:
                sys.exit(f'pump.{op["opName"]}: PumpOps.td gives the argument "{name}" no "clause: meaning"')
        return found

    def common(self, *groups):
        """What all ops of the groups have."""
        first, *others = (self.clauses(op) for group in groups for op in self.groups[group])
        return [clause for clause in first if all(clause in other for other in others)]

    def items(self, name):
        group, kind = name.split()
        self.shown.add(name)
        everywhere = self.common("captured", "added")
        if name == "node clauses":
            return list(map(row, everywhere))
        if kind == "clauses":
            return [row(clause) for clause in self.common(group) if clause not in everywhere]
        rows = []
        for op in self.groups[group]:
            own = [row(clause) for clause in self.clauses(op) if clause not in self.common(group)]
            rows.append((f"`pump.{op['opName']}`", "; ".join([op["summary"], *map(": ".join, own)])))
        return rows

    def all_lists(self):
        return {"node clauses"} | {f"{group} {kind}" for group, ops in self.groups.items()
                                   for kind in ("ops", "clauses")[len(ops) == 1:]}


def row(clause):
    """The argument is named where the clause does not."""
    name, syntax, meaning = clause
    return (syntax if re.search(rf"\b{name}\b", syntax) else f"{syntax} (`{name}`)"), meaning


def ops(document, records):
    definitions = Definitions(json.loads(records))

    def made_anew(place):
        items = map(": ".join, definitions.items(place[2]))
        wrapped = [textwrap.fill(item, WIDTH, initial_indent="* ", subsequent_indent="  ", break_long_words=False,
                                 break_on_hyphens=False) for item in items]
        return place[1] + "\n".join([*wrapped, ""])

    print(LIST.sub(made_anew, document), end="")
    if definitions.shown != definitions.all_lists():
        sys.exit(f"lists of {sorted(definitions.shown)}, but there are {sorted(definitions.all_lists())}")


files = [pathlib.Path(name).read_text() for name in sys.argv[2:]]
{"parse": parse, "transform": transform, "passes": passes, "ops": ops, "words": words}[sys.argv[1]](*files)

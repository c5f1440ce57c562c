#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows paths of readers with a question, link by link from README.md."""
import os
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools" / "docs"))
import check  # noqa: E402

START = pathlib.Path("README.md")
# Of each question the links to its answer, and a word of that.
PATHS = {
    "My loop was refused, what now?": (
        ["docs/guide/troubleshooting.md", "docs/guide/troubleshooting.md#my-step-was-refused",
         "docs/guide/pytorch.md#limits-of-a-replay"], "`StaleStepError`"),
    "Where is the plan made?": (
        ["docs/design/architecture.md", "docs/design/planner.md",
         "docs/design/planner.md#types-and-the-path-of-a-step-through-them"], "planResidency()"),
    "How do I add a pass?": (
        ["CONTRIBUTING.md", "docs/design/architecture.md#to-add-a-pass"], "passes/ir/Passes.td"),
}


def links(tree, document):
    """Targets as paths from the root, with their anchors."""
    for target in filter(None, sum(check.TARGET.findall(tree.text(document)), ())):
        if not re.match(r"[a-z][a-z0-9+.-]*:|//", target):
            name, _, anchor = target.partition("#")
            path = os.path.normpath(document.parent / name) if name else document.as_posix()
            yield pathlib.Path(path), anchor


def section(tree, document, anchor):
    """The text from that heading to the next of any level."""
    starts = [block.line for block in tree.blocks(document) if block.kind == "heading"]
    ends = starts[1:] + [None]
    start, end = list(zip(starts, ends))[tree.anchors(document).index(anchor)]
    return "\n".join(tree.text(document).split("\n")[start:end and end - 1])


def paths():
    for question, (targets, answer) in PATHS.items():
        yield question, [(pathlib.Path(name), anchor) for name, _, anchor in
                         (target.partition("#") for target in targets)], answer


class Paths(unittest.TestCase):
    def setUp(self):
        self.tree = check.Tree(ROOT)

    def test_each_link_is_where_the_one_before_it_leads(self):
        for question, path, _ in paths():
            here = START
            for document, anchor in path:
                with self.subTest(question=question, document=here):
                    if document != here:
                        self.assertIn((document, anchor), list(links(self.tree, here)))
                    if anchor:
                        self.assertIn(anchor, self.tree.anchors(document))
                here = document

    def test_the_last_section_has_the_answer(self):
        for question, path, answer in paths():
            with self.subTest(question=question):
                self.assertIn(answer, section(self.tree, *path[-1]))


if __name__ == "__main__":
    unittest.main()

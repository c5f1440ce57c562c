#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the paths that CONTRIBUTING.md promises to readers, link by link from README.md."""
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
STATED_IN = pathlib.Path("CONTRIBUTING.md")
# Of each question what its last section has to say.
ANSWERS = {
    "My loop was refused, what now?": "`StaleStepError`",
    "Where is the plan made?": "planResidency()",
    "How do I add a pass?": "passes/ir/Passes.td",
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


def stated_paths(tree):
    for line in tree.text(STATED_IN).split("\n"):
        row = check.cells(line) if line.startswith("|") else []
        if row and row[0].endswith("?"):
            yield row[0], [(pathlib.Path(name), anchor) for name, _, anchor in
                           (link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", row[1]))]


class Paths(unittest.TestCase):
    def setUp(self):
        self.tree = check.Tree(ROOT)

    def test_every_question_has_a_path(self):
        self.assertEqual({question for question, _ in stated_paths(self.tree)}, set(ANSWERS))

    def test_each_link_is_where_the_one_before_it_leads(self):
        for question, path in stated_paths(self.tree):
            here = START
            for document, anchor in path:
                with self.subTest(question=question, document=here):
                    if document != here:
                        self.assertIn((document, anchor), list(links(self.tree, here)))
                    if anchor:
                        self.assertIn(anchor, self.tree.anchors(document))
                here = document

    def test_the_last_section_has_the_answer(self):
        for question, path in stated_paths(self.tree):
            with self.subTest(question=question):
                self.assertIn(ANSWERS[question], section(self.tree, *path[-1]))


if __name__ == "__main__":
    unittest.main()

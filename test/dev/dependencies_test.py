#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The folders of docs/design/architecture.md include no others than it says, and none below them."""
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ITEM = re.compile(r"^\* `((passes|runtime)/(\w+)/)`.*?(?:\(([^()]*)\))?$")
INCLUDE = re.compile(r'^#include "((?:passes|runtime)/\w+/)', re.MULTILINE)


def documented():
    """By folder: what it may include, in the order of the list."""
    folders = {}
    for line in (ROOT / "docs/design/architecture.md").read_text(encoding="utf-8").splitlines():
        if item := ITEM.match(line):
            folder, area, _, last = item.groups("")
            if f"all of `{area}/` above" in last:
                folders[folder] = {other for other in folders if other.startswith(area)}
            else:
                folders[folder] = {f"{area}/{name}/" for name in re.findall(r"[\w/]+", last)}
    return folders


def included(folder):
    """By other folder: the file that includes it."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".h", ".cpp", ".in"):
            for other in INCLUDE.findall(path.read_text(encoding="utf-8")):
                found[other] = path.relative_to(ROOT)
    found.pop(folder, None)
    return found


class Dependencies(unittest.TestCase):
    def test_no_folder_includes_one_below_it(self):
        above = set()
        for folder, may in documented().items():
            with self.subTest(folder):
                self.assertEqual((may & documented().keys()) - above, set())
            above.add(folder)

    def test_folders_include_what_the_list_says(self):
        for folder, may in documented().items():
            found = included(folder)
            with self.subTest(folder):
                self.assertEqual({other: path for other, path in found.items() if other not in may}, {})
                if folder.startswith("passes/"):
                    self.assertEqual((may & documented().keys()) - found.keys(), set())

    def test_the_list_has_every_folder(self):
        sources = {f"{path.relative_to(ROOT)}/" for area in ("passes", "runtime") for path in (ROOT / area).iterdir()
                   if any(path.glob("*.cpp"))}
        self.assertEqual(sources - documented().keys(), set())


if __name__ == "__main__":
    unittest.main()

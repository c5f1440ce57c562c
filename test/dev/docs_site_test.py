#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The site of the documents: this tree's is made without a warning, and each kind of fault is found."""
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "docs"))

import check  # noqa: E402
import make_site  # noqa: E402


class Layout(unittest.TestCase):
    def test_content_of_items_moves_to_columns_of_four(self):
        text = "1. One\n\n   | a |\n   | - |\n2. Two\n   * inner\n     more\n\nend\n"
        self.assertEqual(make_site.indented(text),
                         "1. One\n\n    | a |\n    | - |\n\n2. Two\n    * inner\n        more\n\nend\n")

    def test_an_item_after_a_paragraph_gets_an_empty_line(self):
        self.assertEqual(make_site.indented("text\n* one\n* two\n"), "text\n\n* one\n* two\n")

    def test_code_stays(self):
        text = "```\n  * no item\n    text\n```\n"
        self.assertEqual(make_site.indented(text), text)

    def test_a_block_has_a_language_alone(self):
        self.assertEqual(make_site.indented("```console gpu\n$ run\n```\n"), "```console\n$ run\n```\n")

    def test_headings_have_the_anchors_of_the_documents(self):
        for heading in ("A shared boundary", "probe.cu", "ResNet-50, fp32, SGD, batch 32", "Traces, 128 GiB"):
            block = check.Block(1, heading, "heading")
            self.assertEqual([make_site.slug(heading, "-")], check.anchors_of([block]))


class Links(unittest.TestCase):
    def found(self, **pages):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in pages.items():
                make_site.write(Path(folder) / "docs" / f"{name}.html", text)
            return [*make_site.dead_links(Path(folder)), *make_site.raw_lists(Path(folder))]

    def test_good_ones(self):
        self.assertEqual(self.found(a='<h1 id="x">X</h1><a href="b.html#y">', b='<a name="y"></a><a href="a.html#x">'
                                    '<a href="#y"><a href="https://nowhere/"><pre>\n* code\n</pre>'), [])

    def test_dead_ones(self):
        self.assertEqual(self.found(a='<a href="c.html">', b='<a href="a.html#x"><img src="b.svg">'),
                         ["docs/a.html: there is no c.html", "docs/b.html: there is no a.html#x",
                          "docs/b.html: there is no b.svg"])

    def test_markdown_that_came_through(self):
        self.assertEqual(self.found(a="<p>text:\n* one\n* two</p>"),
                         ["docs/a.html: not laid out: * one", "docs/a.html: not laid out: * two</p>"])


@unittest.skipUnless(shutil.which("mkdocs") and shutil.which("doxygen"), "needs mkdocs and doxygen")
class Site(unittest.TestCase):
    def test_it_is_made(self):
        with tempfile.TemporaryDirectory() as folder:
            site = make_site.make(ROOT, Path(folder))
            for page in ("index.html", "docs/guide/pytorch.html", "api/c/pumpgraph_8h.html", "api/python.html"):
                self.assertTrue((site / page).is_file(), page)
            index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
            self.assertIn("docs/reference/pytorch.html#places-that-are-searched", index)
            self.assertIn("pumpgraph.graphed", index)

    def test_an_undocumented_name_of_a_header_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "tree"
            make_site.write(root / "runtime/include/pumpgraph/a.h", "/** \\file\n * A. */\nint undocumented(int x);\n")
            (root / "tools/docs").mkdir(parents=True)
            shutil.copy(ROOT / "tools/docs/Doxyfile", root / "tools/docs")
            with self.assertRaisesRegex(make_site.Failure, "undocumented"):
                make_site.headers_reference(root, Path(folder) / "out")


if __name__ == "__main__":
    unittest.main()

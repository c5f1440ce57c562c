#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/docs/check.py on documents that each test writes."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "docs"))
import check  # noqa: E402

GLOSSARY = """# Glossary
* **evict**: To give up a frame. *Not:* send away,
  throw out.
* **frame**: Device memory.
"""


class DocsCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("tools/docs/exceptions.txt", "# A comment.\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def check(self, *arguments):
        """Exit status and output."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = check.main(["--root", str(self.root), *arguments])
        return status, output.getvalue()

    def figures(self, text):
        self.write("docs/a.md", text)
        return check.Tree(self.root).measure(pathlib.Path("docs/a.md"))

    def exceptions(self):
        return (self.root / "tools/docs/exceptions.txt").read_text(encoding="utf-8")

    # ---- vague words

    def test_vague_words_are_counted_per_thousand(self):
        text = "What stays, and who waits, whatever comes.\n" + "word " * 93
        self.assertEqual(self.figures(text).values["vague"], 30)
        self.assertEqual(self.figures("Somewhat whole, whose thing.").values["vague"], 0)

    def test_one_vague_word_is_within_the_limit_of_a_short_document(self):
        self.assertEqual(self.figures("Say what it is.").values["vague"], 0)
        self.assertEqual(self.figures("Say what it is, and who it is.").values["vague"], 250)

    def test_all_documents_together_have_a_limit(self):
        self.write("README.md", "one two three")
        with mock.patch.object(check, "MOST_WORDS", 3):
            self.assertEqual(self.check()[0], 0)
            self.write("docs/a.md", "four")
            status, output = self.check()
        self.assertEqual(status, 1)
        self.assertIn("over the limit of 3: 4 words in all documents", output)

    def test_code_is_left_out(self):
        text = "Two `what who` words.\n```\nwhat who whatever\n```\n~~~text\nwhoever\n```\nwhat\n~~~\nThe end.\n"
        figures = self.figures(text)
        self.assertEqual(figures.faults["vague"], [])
        self.assertEqual(figures.values["long"], 0)

    def test_cells_of_tables_count_without_their_code(self):
        table = "| `what a b` | what |\n| --- | --- |\n| `a | what` c | who |\n"
        self.assertEqual([fault.line for fault in self.figures(table).faults["vague"]], [1, 3])
        self.assertEqual(self.figures(table).values["vague"], round(2000 / 3, 1))

    def test_links_count_by_their_text(self):
        self.assertEqual(self.figures("[This](what.md) and ![what](who.png) that.").faults["vague"], [])
        self.assertEqual(len(self.figures("[What](a.md) and [who](b.md).").faults["vague"]), 2)

    # ---- sentences

    def test_a_sentence_of_36_words_is_long(self):
        self.assertEqual(self.figures("Word " * 34 + "end. A second one.").values["long"], 0)
        figures = self.figures("First.\n\n" + "word\n" * 35 + "end. A second one.")
        self.assertEqual(figures.values["long"], 33.3)
        self.assertEqual(figures.faults["long"][0].line, 3)

    def test_sentences_end_with_their_block(self):
        half = "word " * 20
        for text in (f"* {half}\n* {half}", f"1. {half}\n2. {half}", f"{half}\n\n{half}", f"# {half}\n{half}",
                     f"| {half} | {half} |", f"{half}\n```\n{half}\n```\n{half}"):
            self.assertEqual(self.figures(text).values["long"], 0, text)
        self.assertEqual(self.figures(f"* {half}\n  {half}").values["long"], 100)

    def test_numbers_and_code_do_not_end_a_sentence(self):
        self.assertEqual(self.figures("Between 1.5 and 2.5 " + "word " * 33 + "`a. B.`").values["long"], 100)

    # ---- links

    def test_links_lead_to_files_and_headings(self):
        self.write("README.md", "[a](docs/a.md), [it](docs/a.md#the-first-one), [folder](docs/), [up](#none)\n")
        self.write("docs/a.md", "# The `first` *one*!\n## Twice\n## Twice\n## x_y (z)\n"
                   "[1](#twice) [2](#twice-1) [3](#x_y-z) [4](../README.md) [5](https://x.org/a.md) [6](/docs/a.md)\n"
                   "[7](#twice-2) [8](b.md) [9](../README.md#b) ![10](c.png) <img src=\"d.png\">\n")
        status, output = self.check()
        self.assertEqual(status, 1)
        dead = [line.strip() for line in output.split("\n") if line.startswith("  ")]
        self.assertEqual(dead, ["README.md:1: README.md has no #none", "docs/a.md:6: docs/a.md has no #twice-2",
                                "docs/a.md:6: there is no docs/b.md", "docs/a.md:6: README.md has no #b",
                                "docs/a.md:6: there is no docs/c.png", "docs/a.md:6: there is no docs/d.png"])

    def test_links_over_two_lines_and_definitions(self):
        links = self.figures("A [text\nof two](b.md).\n\n[x]: c.md\n").faults["links"]
        self.assertEqual([fault.line for fault in links], [2, 4])

    def test_links_in_code_are_none(self):
        self.assertEqual(self.figures("`[a](b.md)`\n```\n[a](b.md)\n```\n").faults["links"], [])
        self.assertEqual(len(self.figures("[`a`](b.md)").faults["links"]), 1)

    def test_sources_name_documents_that_exist(self):
        self.write("docs/a.md", "# One\n")
        self.write("runtime/x.h", "/// docs/a.md, docs/a.md#one, ../docs/b.md\n/// docs/c.md, docs/a.md#two\n")
        self.write("runtime/build/x.h", "/// docs/d.md\n")
        status, output = self.check()
        self.assertEqual(status, 1)
        self.assertEqual(output.split("\n")[-3:-1],
                         ["runtime/x.h:2: there is no docs/c.md", "runtime/x.h:2: docs/a.md has no #two"])

    # ---- terms

    def test_words_that_the_glossary_rules_out(self):
        self.write("docs/glossary.md", GLOSSARY)
        figures = self.figures("Send\naway a frame. Resend awayness. `throw out`\n\n| Throw out |\n")
        self.assertEqual([fault.message for fault in figures.faults["terms"]],
                         ['"send away" is "evict" in the glossary', '"throw out" is "evict" in the glossary'])
        self.assertEqual(check.Tree(self.root).measure(check.GLOSSARY).values["terms"], 0)

    # ---- limits and exceptions

    def test_documents_within_the_limits_pass(self):
        self.write("docs/a.md", "# Title\nA short text.\n")
        self.write("README.md", "Two words.\n")
        status, output = self.check()
        self.assertEqual(status, 0)
        self.assertRegex(output, r"\| docs/a.md +\| +5 \| +0 \| +0 \| +0 \| +0 \|")
        self.assertRegex(output, r"\| in all +\| +7 \|")

    def test_each_limit_fails(self):
        self.write("docs/glossary.md", GLOSSARY)
        for limit, text in {"vague": "What and who.", "long": "word " * 36, "links": "[a](b.md)",
                            "terms": "They send away frames."}.items():
            with self.subTest(limit):
                self.write("docs/a.md", text)
                status, output = self.check()
                self.assertEqual(status, 1)
                self.assertRegex(output, f"\nover the limit of \\d: docs/a.md {limit} ")

    def test_an_exception_allows_its_figure_and_no_more(self):
        self.write("docs/a.md", "What and who.\n")
        for figure, status in {"666.7": 0, "700": 0, "666.6": 1}.items():
            self.write("tools/docs/exceptions.txt", f"docs/a.md vague {figure}\n")
            self.assertEqual(self.check()[0], status, figure)

    def test_an_exception_that_is_not_needed_fails(self):
        self.write("docs/a.md", "Nothing.\n")
        for line in ("docs/a.md vague 5", "docs/gone.md vague 5"):
            self.write("tools/docs/exceptions.txt", line + "\n")
            status, output = self.check()
            self.assertEqual(status, 1)
            self.assertIn("needs no exception any more", output)

    def test_update_lowers_and_drops_but_never_raises_or_adds(self):
        self.write("docs/a.md", "What and who.\n")
        self.write("docs/b.md", "Nothing.\n")
        self.write("docs/c.md", "[a](no.md), [b](nothing.md)\n")
        self.write("tools/docs/exceptions.txt",
                   "# A comment.\ndocs/a.md vague 700\ndocs/b.md long 3\ndocs/c.md links 1\n")
        status, output = self.check("--update")
        self.assertEqual(status, 1)
        self.assertIn("over the limit of 1: docs/c.md links 2", output)
        self.assertEqual(self.exceptions(), "# A comment.\ndocs/a.md vague 666.7\ndocs/c.md links 1\n")
        self.write("docs/c.md", "No link.\n")
        self.assertEqual(self.check("--update")[0], 0)
        self.assertEqual(self.exceptions(), "# A comment.\ndocs/a.md vague 666.7\n")

    def test_a_limit_that_is_unknown_is_an_error(self):
        self.write("tools/docs/exceptions.txt", "docs/a.md wrong 1\n")
        with self.assertRaisesRegex(ValueError, 'no limit "wrong"'):
            self.check()

    def test_faults_of_one_document(self):
        self.write("docs/a.md", "Fine.\n\nWhat is it?\n")
        status, output = self.check("docs/a.md")
        self.assertEqual(status, 0)
        self.assertEqual(output.split("\n")[-2], 'docs/a.md:3: vague: "What" in: What is it?')


if __name__ == "__main__":
    unittest.main()

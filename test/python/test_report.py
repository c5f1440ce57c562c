# SPDX-License-Identifier: Apache-2.0
import unittest

import support  # noqa: F401
from pumpgraph._report import Report
from pumpgraph._text import printable

FIGURES = {
    "name": "gpt2",
    "nodes": 1203,
    "buffers": 512,
    "accesses": {"proved": 2100, "declared": 40, "observed": 0, "assumed": 7},
    "verdict": "4.00 GiB of 8.00 GiB; 1.08 x in-memory; limited by link up",
    "budget_bytes": 4 * 2**30,
    "plan_bound_s": 0.123,
    "added_nodes": 98,
    "added_edges": 301,
    "plan_ms": 87.4,
    "runtime": {"left_as_captured": None, "lift_ms": 3.2, "pinned_ms": 401.0, "notes": ["two buffers overlap"]},
    "stalls": [
        {"duration_s": 0.002, "at_s": 0.05, "node": 7, "node_name": "gemm", "buffer_name": "blocks.3.up.weight",
         "transfer_bytes": 2**21, "direction": "up"}
    ] * 7,
}

# What a terminal would obey, and what would begin a line of its own.
HOSTILE = "\x1b[31m\nNO: \r\x07\x7f\u009b\u202e\u2066\u2028\udcff"


def with_names(value, name):
    """The figures with `name` for every string."""
    if isinstance(value, dict):
        return {key: with_names(part, name) for key, part in value.items()}
    if isinstance(value, list):
        return [with_names(part, name) for part in value]
    return name if isinstance(value, str) else value


class Text(unittest.TestCase):
    def test_figures_and_stalls(self):
        text = str(Report(FIGURES))
        for part in ("step \"gpt2\": 1203 nodes, 512 buffers", "2100 proved, 40 declared, 7 assumed",
                     "limited by link up", "4.00 GiB", "123.00 ms", "98 nodes, 301 edges", "87 ms",
                     "404 ms: lift 3, pinned 401", "note: two buffers overlap",
                     "7, 14.00 ms in all",
                     "node 7 \"gemm\" waits 2.00 ms for \"blocks.3.up.weight\" (2.00 MiB up) at 50.00 ms"):
            self.assertIn(part, text)
        self.assertEqual(text.count("waits"), 5)
        self.assertNotIn("left as captured", text)

    def test_says_which_node_times_its_figures_are_by(self):
        for costs, words in (("static", "estimated"), ("saved", "of a saved step"),
                             ("measured", "measured on this step"), (None, None)):
            text = str(Report(dict(FIGURES, runtime=dict(FIGURES["runtime"], costs=costs))))
            self.assertEqual("node times" in text, words is not None)
            self.assertIn(f"  node times            {words}\n" if words else "", text)

    def test_names_are_obeyed_by_no_terminal(self):
        every = dict(FIGURES, few_nodes={"warning": "x"}, repeated_sweeps=[{"verdict": "x"}],
                     runtime=dict(FIGURES["runtime"], left_as_captured="x", backend_why="x", warnings=["x"]))
        plain, hostile = (str(Report(with_names(every, name))) for name in ("plain", HOSTILE))
        self.assertEqual(plain.count("\n"), hostile.count("\n"))
        self.assertEqual("\n".join(map(printable, hostile.split("\n"))), hostile)
        self.assertIn(r"\x1b[31m\x0aNO: \x0d\x07\x7f\u009b\u202e\u2066\u2028\udcff", hostile)

    def test_printable(self):
        for name in ("", "layer1.weight", "a b \\ \"'<>&", "häuser", "λ", "漢字", "🐎"):
            self.assertEqual(printable(name), name)
        self.assertEqual(printable(HOSTILE), printable(printable(HOSTILE)))
        self.assertEqual(printable(7), "7")

    def test_damaged_times_are_loud(self):
        self.assertIsNone(Report(FIGURES).few_nodes)
        self.assertNotIn("WARNING", str(Report(dict(FIGURES, few_nodes=None))))
        warning = "2 of 49 measured nodes take 99 % of their time"
        report = Report(dict(FIGURES, few_nodes={"nodes": 2, "measured_nodes": 49, "share": 0.99, "warning": warning}))
        self.assertEqual(report.few_nodes, warning)
        self.assertIn(f"\nWARNING: {warning}\n", str(report))

    def test_what_is_hosted(self):
        self.assertNotIn("always in host memory", str(Report(FIGURES)))
        text = str(Report(dict(FIGURES, hosted_bytes=2**30, hosted_link_s=0.05)))
        self.assertIn("1.00 GiB always in host memory, 50.00 ms on the link", text)

    def test_a_step_left_as_captured_says_why(self):
        report = Report({"name": "net", "runtime": {"left_as_captured": "node 7 is a conditional node"}})
        self.assertEqual(report.left_as_captured, "node 7 is a conditional node")
        self.assertIn("left as captured: node 7 is a conditional node", str(report))

    def test_where_memory_is_and_what_will_not_fit(self):
        report = Report({"runtime": {"backend_why": "managed memory, as asked for", "warnings": ["2.0 GiB more"]}})
        self.assertEqual(report.backend_why, "managed memory, as asked for")
        self.assertEqual(report.warnings, ["2.0 GiB more"])
        self.assertRegex(str(report), "  memory +managed memory, as asked for\n  warning: 2.0 GiB more")
        self.assertEqual(Report(FIGURES).warnings, [])

    def test_long_kernel_names_keep_both_ends(self):
        stall = dict(FIGURES["stalls"][0], node_name="_ZN5begin" + "x" * 200 + "end")
        text = str(Report(dict(FIGURES, stalls=[stall])))
        self.assertRegex(text, r'node 7 "_ZN5beginx*\.\.\.x*end" waits')
        self.assertNotIn("x" * 60, text)

    def test_nodes_have_the_names_that_the_program_gave_them(self):
        stall = dict(FIGURES["stalls"][0], node_label="blocks.3.up backward (addmm)")
        text = str(Report(dict(FIGURES, stalls=[stall])))
        self.assertIn("node 7 \"blocks.3.up backward (addmm)\" waits 2.00 ms for \"blocks.3.up.weight\"", text)

    def test_sweeps_are_a_line_where_there_are_any(self):
        verdict = "6 walks over 4.20 GiB of state"
        self.assertRegex(str(Report(dict(FIGURES, repeated_sweeps=[{"verdict": verdict}]))), f"  sweeps +{verdict}")
        self.assertNotIn("sweeps", str(Report(FIGURES)))

    def test_an_empty_report_still_prints(self):
        self.assertIn("step \"step\"", str(Report({})))

    def test_a_notebook_shows_times_as_bars(self):
        shown = Report({"name": "<b>", "in_memory_s": 0.1, "predicted_s": 0.2})._repr_html_()
        self.assertIn("width:100px\"></div> 100.00 ms", shown)
        self.assertIn("width:200px\"></div> 200.00 ms", shown)
        self.assertIn("&lt;b&gt;", shown)
        self.assertIn("<pre>", Report()._repr_html_())

    def test_it_is_the_librarys_dict(self):
        self.assertEqual(Report(FIGURES)["added_nodes"], 98)


if __name__ == "__main__":
    unittest.main()

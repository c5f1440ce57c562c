# SPDX-License-Identifier: Apache-2.0
"""pump-graph-bench without a GPU: which runs it makes, how it resumes, and the tables it prints."""

import copy
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

BENCH = support.ROOT / "tools" / "pump-graph-bench"
sys.path.insert(0, str(BENCH))

import outside  # noqa: E402
import runs  # noqa: E402
import table  # noqa: E402

GIB = 2**30
EXAMPLE = runs.Example("gpt2", "GPT-2", ["true"])


def figures(step_ms=100.0, **changes):
    result = {
        "step_ms": [step_ms - 1, step_ms, step_ms + 1],
        "losses": ["0x1.8p+1", "0x1.0p+1"],
        "peak_bytes": 4 * GIB,
        "device_used_bytes": 5 * GIB,
        "memory": {"budget_bytes": 4 * GIB, "device_bytes": 4 * GIB},
        "timings": {"rehearsal_s": 0.5, "capture_s": 0.5, "adopt_s": 1.0, "instantiate_s": 0.1, "first_replay_s": 0.1},
        "sequence": {"nodes": 3, "sha256": "abc"},
        "report": {"plan_bound_s": 0.09, "bound_s": 0.08, "in_memory_s": 0.05, "added_nodes": 4, "up_bytes": GIB,
                   "down_bytes": GIB, "plan_ms": 90, "peak_bytes_before": 8 * GIB, "budget_bytes": 3 * GIB,
                   "stalls": [],
                   "runtime": {"budget_bytes": 4 * GIB, "pinned_ms": 0}},
        "wall_s": 10,
    }
    result.update(changes)
    return result


def complete():
    """A benchmark in which every promise is kept."""
    done = {f"gpt2/plain/{repeat}": figures(50.0, report=None, memory=None, peak_bytes=8 * GIB) for repeat in (0, 1)}
    for done_plain in done.values():
        del done_plain["report"], done_plain["memory"], done_plain["sequence"]
    done["gpt2/record/0"] = figures(50.0)
    host_memory = {"device_bytes": 2**26, "budget_bytes": 2**26}
    done["gpt2/host/0"] = figures(1000.0, device_used_bytes=GIB + 2**26, memory=host_memory)
    for row in ("100", "75", "50", "30"):
        done[f"gpt2/{row}/0"] = figures()
    full = figures(50.5)
    full["report"]["added_nodes"] = 0
    done["gpt2/full/0"] = full
    return done


def broken(done):
    return [text for kept, text in table.checks(table.Rows(EXAMPLE, done)) if not kept]


class Outside(unittest.TestCase):
    """Names and messages from results, traces and other programs: tables print them, and no terminal obeys them."""

    HOSTILE = "\x1b[31m\n| NO: \u202e\x9b"
    SHOWN = r"\x1b[31m\x0a| NO: \u202e\u009b"

    def test_results_are_printable(self):
        self.assertEqual(outside.clean({self.HOSTILE: [self.HOSTILE, 7, None, {"a": (self.HOSTILE,)}]}),
                         {self.SHOWN: [self.SHOWN, 7, None, {"a": [self.SHOWN]}]})
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "results.jsonl"
            file.write_text(json.dumps({"key": "gpt2/plain/0", "figures": {"error": self.HOSTILE}}) + "\n")
            self.assertEqual(runs.load(file), {"gpt2/plain/0": {"error": self.SHOWN}})

    def test_what_a_run_says_is_printable(self):
        script = f"import sys; sys.stderr.write({self.HOSTILE!r}); sys.exit(3)"
        example = runs.Example("gpt2", "GPT-2", [sys.executable, "-c", script])
        error = runs.execute(runs.Run(example, "plain", 0), {}, Path("none"), 1, 1, 60)["error"]
        self.assertEqual(error, outside.printable(error))
        self.assertIn(r"\x1b[31m", error)

    def test_all_that_is_read_is_read_that_way(self):
        # Workers read what this side has written.
        ours = {"outside.py", "program_worker.py", "sentinel_worker.py"}
        for file in sorted(BENCH.glob("*.py")):
            if file.name not in ours:
                self.assertNotRegex(file.read_text(), r"\bjson\.loads?\(", file.name)


class Plan(unittest.TestCase):
    def test_repeats_are_interleaved_and_only_timed_rows_repeat(self):
        keys = [run.key for run in runs.plan_runs([EXAMPLE], ["plain", "record", "50"], 2)]
        self.assertEqual(keys, ["gpt2/plain/0", "gpt2/record/0", "gpt2/50/0", "gpt2/plain/1", "gpt2/50/1"])

    def test_budgets_are_percentages_of_the_plain_peak(self):
        done = {"gpt2/plain/0": {"peak_bytes": 1000}}
        self.assertEqual(runs.budget_of(runs.Run(EXAMPLE, "30", 0), done), 300)
        self.assertIsNone(runs.budget_of(runs.Run(EXAMPLE, "record", 0), done))

    def test_the_full_budget_is_the_page_granular_peak_beside_what_else_there_is(self):
        self.assertEqual(runs.budget_of(runs.Run(EXAMPLE, "full", 0), complete()), 9 * GIB)

    def test_a_missing_figure_is_an_error_of_the_run(self):
        for row, reason in (("50", "no plain run"), ("full", "no run with a plan")):
            result = runs.execute(runs.Run(EXAMPLE, row, 0), {}, Path("/none"), 20, 10, 10)
            self.assertIn(reason, result["error"])

    def test_plans_use_recorded_costs_only_where_there_are_some(self):
        run = runs.Run(EXAMPLE, "50", 0)
        self.assertNotIn("--costs", runs.arguments_of(run, complete(), Path("/none"), 20, 10))
        with tempfile.NamedTemporaryFile() as costs:
            self.assertIn("--costs", runs.arguments_of(run, complete(), Path(costs.name), 20, 10))


class Execute(unittest.TestCase):
    def run_script(self, script, timeout=20.0):
        example = runs.Example("gpt2", "GPT-2", [sys.executable, "-c", script])
        return runs.execute(runs.Run(example, "plain", 0), {}, Path("/none"), 20, 10, timeout)

    def test_figures_come_from_the_file(self):
        script = "import sys, json; json.dump({'step_ms': [1]}, open(sys.argv[sys.argv.index('--json') + 1], 'w'))"
        self.assertEqual(self.run_script(script)["step_ms"], [1])

    def test_a_failure_keeps_the_last_words(self):
        script = "import sys; print('out of luck', file=sys.stderr); sys.exit(3)"
        self.assertIn("exit status 3: out of luck", self.run_script(script)["error"])

    def test_a_silent_program_is_an_error(self):
        self.assertIn("no figures", self.run_script("pass")["error"])

    def test_a_hanging_program_is_stopped(self):
        self.assertIn("stopped after", self.run_script("import time; time.sleep(60)", timeout=0.2)["error"])


class Sequence(unittest.TestCase):
    TEXT = """pump.graph @step {
  %a = pump.buffer "acts" private size(8)
  %k0 = pump.kernel "gemm<int, \\"x\\">" node(0) [read %a[0, 8] assumed] cost(1.5)
  %k1 = pump.memset node(1) after(%k0) [write %a[0, 8] proved]
}
"""

    def digest(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
            file.write(text)
            file.flush()
            return runs.node_sequence(Path(file.name))

    def test_costs_and_addresses_do_not_count(self):
        self.assertEqual(self.digest(self.TEXT)["nodes"], 2)
        other = self.TEXT.replace("1.5", "2.5").replace("size(8)", "size(9)")
        self.assertEqual(self.digest(self.TEXT), self.digest(other))

    def test_names_kinds_and_order_do(self):
        for old, new in (("gemm", "gemv"), ("pump.memset", "pump.memcpy"), ("node(1)", "node(2)")):
            self.assertNotEqual(self.digest(self.TEXT)["sha256"], self.digest(self.TEXT.replace(old, new))["sha256"])


class Tables(unittest.TestCase):
    def test_a_complete_benchmark_keeps_every_promise(self):
        self.assertEqual(broken(complete()), [])
        self.assertEqual(len(list(table.checks(table.Rows(EXAMPLE, complete())))), 8)

    def test_each_promise_can_break(self):
        def change(key, where, value):
            done = complete()
            target = done[key]
            for name in where[:-1]:
                target = target[name]
            target[where[-1]] = value
            return done

        for expected, done in {
            "does not agree": change("gpt2/plain/1", ["losses"], ["0x1p+0", "0x1p+0"]),
            "bit for bit in 4 of 5": change("gpt2/30/0", ["losses"], ["0x1p+0", "0x1p+0"]),
            "2 sequences": change("gpt2/50/0", ["sequence", "sha256"], "other"),
            "2 nodes are added": change("gpt2/full/0", ["report", "added_nodes"], 2),
            "1.040 of the native": change("gpt2/full/0", ["step_ms"], [52.0]),
            "1.33 of the plan bound": change("gpt2/50/0", ["step_ms"], [120.0]),
            "at most 1024 MiB": change("gpt2/75/0", ["device_used_bytes"], 6 * GIB),
            "3.20 s": change("gpt2/75/0", ["timings", "adopt_s"], 2.0),
        }.items():
            with self.subTest(expected=expected):
                self.assertEqual(len(broken(done)), 1, broken(done))
                self.assertIn(expected, broken(done)[0])

    def test_pinning_does_not_count_as_start(self):
        done = complete()
        done["gpt2/75/0"]["timings"]["adopt_s"] = 2.0
        done["gpt2/75/0"]["report"]["runtime"]["pinned_ms"] = 1000
        self.assertEqual(broken(done), [])

    def test_a_slow_half_names_its_stalls(self):
        done = complete()
        done["gpt2/50/0"]["step_ms"] = [120.0]
        done["gpt2/50/0"]["report"]["stalls"] = [{"buffer_name": "blocks.0.up", "duration_s": 0.0123}]
        self.assertIn("waits for \"blocks.0.up\" 12.3 ms", broken(done)[0])

    def test_no_nodes_at_all_are_no_equal_sequences(self):
        done = complete()
        for entry in done.values():
            if "sequence" in entry:
                entry["sequence"] = {"nodes": 0, "sha256": "e3b0"}
        self.assertTrue(any("0 nodes" in text for text in broken(done)))

    def test_markdown(self):
        text = table.markdown([EXAMPLE], complete())
        figures_of_half = "100.0 (99.0-101.0) | 2.00 | 80.0 | 90.0 | 1.11 | 1.00 GiB | 1.00 GiB | 4 | 90 ms | equal |"
        self.assertIn("| 50 % | 4.00 GiB | " + figures_of_half, text)
        self.assertIn("Wholly host-backed, unchanged: 1,000 ms a step, 20 times as long.", text)
        widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
        self.assertEqual(len(widths), 1, "the table's rows differ in length")

    def test_what_is_missing_is_a_dash_and_what_failed_is_named(self):
        text = table.markdown([EXAMPLE], {"gpt2/50/0": {"error": "exit status 1: boom"}})
        self.assertIn("| 50 % | - |", text)
        self.assertIn("NOT RUN: gpt2/50/0: exit status 1: boom", text)


class CommandLine(unittest.TestCase):
    def run_bench(self, *arguments):
        return subprocess.run([sys.executable, str(BENCH), *arguments], capture_output=True, text=True)

    def write(self, folder, done):
        path = Path(folder) / "results.jsonl"
        lines = [json.dumps({"key": key, "figures": entry}) for key, entry in done.items()]
        path.write_text("\n".join(lines) + "\n{\"key\": \"gpt2/30/1\", \"fig")  # the last line was cut by a kill
        return path

    def test_tables_from_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            result = self.run_bench("--from", str(self.write(folder, complete())), "--examples", "gpt2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("* kept: 2 losses equal", result.stdout)

    def test_a_broken_promise_is_exit_status_1(self):
        done = copy.deepcopy(complete())
        done["gpt2/30/0"]["losses"] = ["0x0p+0"]
        with tempfile.TemporaryDirectory() as folder:
            result = self.run_bench("--from", str(self.write(folder, done)), "--examples", "gpt2")
        self.assertEqual(result.returncode, 1)
        self.assertIn("* BROKEN:", result.stdout)

    def test_what_is_done_is_not_run_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.write(folder, complete())
            result = self.run_bench("--results", str(path), "--examples", "gpt2", "--repeats", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")

    def test_unknown_names_are_refused(self):
        for arguments in (("--examples", "bert"), ("--rows", "60"), ("--from", "/nowhere")):
            result = self.run_bench(*arguments)
            self.assertEqual(result.returncode, 1)
            self.assertIn("error:", result.stderr)


if __name__ == "__main__":
    unittest.main()

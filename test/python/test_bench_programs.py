# SPDX-License-Identifier: Apache-2.0
"""The table of programs without a GPU and without PyTorch: which processes it starts, how it resumes, what it prints.
test_programs.py runs the programs themselves."""

import ast
import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import support

BENCH = support.ROOT / "tools" / "pump-graph-bench"
sys.path.insert(0, str(BENCH))

import program_command  # noqa: E402
import program_rows  # noqa: E402
import program_table  # noqa: E402
import runs  # noqa: E402
import workers  # noqa: E402

GIB = 2**30
LM = program_rows.BY_NAME["causal_lm"]
GAN = program_rows.BY_NAME["gan"]
TRAINER = program_rows.BY_NAME["trainer"]
LOSSES = ["0x1.8p+1", "0x1.0p+1"]


def report(plan_bound_s):
    return {"plan_bound_s": plan_bound_s, "predicted_s": plan_bound_s * 1.01, "in_memory_s": 0.02, "added_nodes": 8,
            "hosted_bytes": 0, "budget_bytes": GIB, "measured_s": plan_bound_s * 1.02}


def with_costs(done, costs):
    done = copy.deepcopy(done)
    for step in next(figures for key, figures in done.items() if "/pumpgraph/" in key)["reports"].values():
        step["costs"] = costs
    return done


def complete(program=LM, step_ms=52.0, bounds=(0.050,)):
    """All rows of one program, every promise kept."""
    plain = {"losses": LOSSES, "turn_ms": [29.0, 30.0, 31.0], "step_ms": [28.0, 29.0, 30.0], "peak_bytes": 4 * GIB}
    steps = [f"step_{index}" for index in range(len(bounds))]
    planned = {"losses": LOSSES, "turn_ms": [step_ms + 2] * 3, "step_ms": [step_ms] * 3, "peak_bytes": 2 * GIB,
               "budget_bytes": 2 * GIB, "calls": dict.fromkeys(steps, 1.0),
               "reports": dict(zip(steps, map(report, bounds)))}
    if program.uncaptured:
        del planned["step_ms"]
    rows = {"eager": plain, "graph": {**plain, "turn_ms": [24.0] * 3, "captured": True}, "pumpgraph": planned}
    return {f"{program.name}/{kind}/0": copy.deepcopy(figures) for kind, figures in rows.items()}


def changed(done, kind, **figures):
    key = next(key for key in done if key.split("/")[1] == kind)
    return {**done, key: {**done[key], **figures}}


def broken(done, chosen=(LM,)):
    return [text for kept, text in program_table.checks(chosen, done) if not kept]


class Rows(unittest.TestCase):
    def test_twenty_programs_with_a_file_each(self):
        files = {path.stem for path in program_rows.FOLDER.glob("*.py")} - {"__init__", "data"}
        self.assertEqual(files, set(program_rows.BY_NAME))
        self.assertEqual(len(program_rows.PROGRAMS), 20)
        self.assertEqual(len(program_rows.BY_NAME), 20)

    def test_says_which_node_times_bounds_are_by(self):
        for costs, shown in (("static", "50.0†"), ("measured", "| 50.0; ")):
            done = with_costs(complete(), costs)
            self.assertIn(shown, program_table.markdown([LM], done))
            self.assertIn(f"plan bounds 50.0 ms by {costs} node times",
                          program_table.outcome(done["causal_lm/pumpgraph/0"]))

    def test_plain_rows_share_a_process(self):
        titles = [job.title for job in program_rows.plan_jobs([LM, GAN], program_rows.KINDS, 2)]
        self.assertEqual(titles, 2 * ["causal_lm eager graph", "causal_lm pumpgraph", "gan eager graph",
                                      "gan pumpgraph"])

    def test_what_is_done_or_refused_is_not_run_again(self):
        plain, planned = program_rows.plan_jobs([LM], program_rows.KINDS, 1)
        done = complete()
        self.assertIsNone(program_rows.missing(plain, done))
        self.assertIsNone(program_rows.missing(planned, changed(done, "pumpgraph", refused="it waits")))
        again = program_rows.missing(plain, changed(done, "graph", error="stopped after 9 s"))
        self.assertEqual([row.kind for row in again.rows], ["graph"])

    def test_the_budget_is_half_of_the_eager_peak(self):
        planned = program_rows.plan_jobs([LM], ["pumpgraph"], 1)[0]
        self.assertEqual(program_rows.budget_bytes(LM, complete()), 2 * GIB)
        self.assertIsNone(program_rows.lacks(planned, complete()))
        self.assertIn("no eager row", program_rows.lacks(planned, {}))


class LinesChanged(unittest.TestCase):
    def count(self, text):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(program_rows, "FOLDER", Path(folder)):
            (Path(folder) / "causal_lm.py").write_text(text)
            return program_rows.lines_changed(LM)

    def test_import_install_and_each_step(self):
        self.assertEqual(self.count("@run.graphed\ndef step(): pass\n"), 3)
        self.assertEqual(self.count("a = run.graphed(a)\nb = run.graphed(b)\n"), 4)

    def test_a_callback_installs_by_itself(self):
        self.assertEqual(self.count("Trainer(callbacks=run.callbacks(\"transformers\"))\n"), 2)

    def test_programs_reach_pumpgraph_by_these_lines_alone(self):
        for program in program_rows.PROGRAMS:
            tree = ast.parse(program.file.read_text())
            own = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)
                   and isinstance(node.value, ast.Name) and node.value.id == "run"]
            with self.subTest(program=program.name):
                self.assertNotIn("pumpgraph", program.file.read_text().lower())
                self.assertLessEqual({node.attr for node in own},
                                     {"graphed", "callbacks", "turn", "turns", "device"})
                lines = {node.lineno for node in own if node.attr in ("graphed", "callbacks")}
                self.assertGreater(len(lines), 0)
                is_trainer = any(node.attr == "callbacks" for node in own)
                self.assertEqual(program_rows.lines_changed(program), len(lines) + (1 if is_trainer else 2))

    def test_no_step_looks_at_the_run(self):
        """PumpGraph searches what a step looks at, and there is no such thing in a program of one's own."""
        for program in program_rows.PROGRAMS:
            steps = [node for node in ast.walk(ast.parse(program.file.read_text())) if isinstance(node, ast.FunctionDef)
                     and any("graphed" in ast.dump(decorator) for decorator in node.decorator_list)]
            names = {node.id for step in steps for part in step.body for node in ast.walk(part)
                     if isinstance(node, ast.Name)}
            with self.subTest(program=program.name):
                self.assertNotIn("run", names)

    def test_nothing_is_written_for_captures(self):
        for program in program_rows.PROGRAMS:
            with self.subTest(program=program.name):
                for word in ("capturable", "preserve_rng_state", "is_current_stream_capturing"):
                    self.assertNotIn(word, program.file.read_text())


class Table(unittest.TestCase):
    def test_a_program_that_keeps_every_promise(self):
        self.assertEqual(broken(complete()), [])
        text = program_table.markdown([LM], complete())
        self.assertIn("| Llama 220M, transformers | 4.00 | 30.0 (29.0-31.0) | 24.0 (24.0-24.0) | "
                      "54.0 (54.0-54.0) | 52.0 | 50.0; 1.04 | 50.5 | 3 |", text)
        self.assertIn("* kept: 1 of 1 promises of single programs", text)
        self.assertIn("* kept: 1 of 1 programs run", text)
        self.assertIn("* kept: 1 of 1 programs have the losses of the plain graph, 2 each", text)

    def test_other_losses_are_told(self):
        text = program_table.markdown([LM], changed(complete(), "pumpgraph", losses=["0x1p+0", "0x1p+0"]))
        self.assertIn("* BROKEN: 0 of 1 programs have the losses of the plain graph, 2 each", text)

    def test_steps_of_a_turn_are_held_against_the_sum_of_their_bounds(self):
        done = complete(GAN, 75.0, (0.020, 0.030))
        done["gan/pumpgraph/0"]["calls"]["step_1"] = 2.0
        self.assertAlmostEqual(program_table.Rows(GAN, done).over_bound(), 75 / 80)

    def test_a_trainers_steps_are_its_replays(self):
        done = complete(TRAINER)
        self.assertAlmostEqual(program_table.Rows(TRAINER, done).over_bound(), 51 / 50)
        self.assertIn("| - (the Trainer has the loop) |", program_table.markdown([TRAINER], done))

    def test_each_promise_can_break(self):
        nothing = {"step_0": {**report(0.050), "added_nodes": 0}}
        for expected, done in {
            "refused: line 7 waits": {**complete(), "causal_lm/pumpgraph/0": {"refused": "line 7 waits"}},
            "losses are the plain ones in 0 of 1 runs": changed(complete(), "pumpgraph", losses=["0x1p+0", "0x1p+0"]),
            "1 MiB over the budget": changed(complete(), "pumpgraph", peak_bytes=2 * GIB + 2**20),
            "0.900 of its bound": complete(step_ms=45.0),
            "no plan moves anything": changed(complete(), "pumpgraph", reports=nothing),
            "no bound": changed(complete(), "pumpgraph", reports={"step_0": {"added_nodes": 1}}),
            "geometric mean of steps over their plan bounds is 1.200": complete(step_ms=60.0),
            "nothing to compare": {key: figures for key, figures in complete().items() if "/graph/" not in key},
        }.items():
            with self.subTest(expected=expected):
                self.assertIn(expected, "\n".join(broken(done)))
                self.assertFalse(program_table.all_kept([LM], done))
        nan = changed(changed(complete(), "pumpgraph", losses=["nan"]), "graph", losses=["nan"])
        self.assertIn("not all losses are numbers", "\n".join(broken(nan)))

    def test_plain_runs_that_disagree_are_told(self):
        done = complete()
        done["causal_lm/graph/1"] = {**done["causal_lm/graph/0"], "losses": ["0x1p+0", "0x1p+0"]}
        self.assertIn("do not agree", "\n".join(broken(done)))

    def test_a_refused_program_is_a_row_and_no_program_that_runs(self):
        done = {**complete(), **complete(GAN), "gan/pumpgraph/0": {"refused": "line 7 waits"}}
        text = program_table.markdown([LM, GAN], done)
        self.assertIn("| refused: line 7 waits | - | - |", text)
        self.assertIn("* BROKEN: 1 of 2 programs run", text)
        cells = {len(line.split(" | ")) for line in text.splitlines() if line.startswith("| ")}
        self.assertEqual(len(cells), 1, "rows of one length")

    def test_a_failed_row_is_told(self):
        done = changed(complete(), "graph", error="boom")
        del done["causal_lm/graph/0"]["turn_ms"]
        self.assertIn("* NOT RUN: causal_lm/graph/0: boom", program_table.markdown([LM], done))
        self.assertFalse(program_table.all_kept([LM], done))

    def test_the_mean_is_geometric(self):
        done = {**complete(step_ms=50.0), **complete(GAN, 50.0 * 1.44)}
        mean = next(text for text in broken(done, (LM, GAN)) if "geometric" in text)
        self.assertIn(f"is {math.sqrt(1.44):.3f}", mean)


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "kept.jsonl"

    def keep(self, done, chosen=(LM,)):
        program_table.keep(done, chosen, self.file)
        return runs.load(self.file)

    def test_the_table_is_the_same(self):
        for done in (complete(), complete(step_ms=70.0), changed(complete(), "pumpgraph", losses=["nan", "nan"]),
                     {**complete(), "causal_lm/pumpgraph/0": {"refused": "line 7 waits"}}):
            self.file.unlink(missing_ok=True)
            kept = self.keep(done)
            self.assertEqual(program_table.markdown([LM], kept), program_table.markdown([LM], done))
            self.assertNotIn("losses", json.dumps([list(figures) for figures in kept.values()]).replace("losses_", ""))
            self.assertEqual(self.keep(kept), kept)

    def test_a_failure_replaces_no_result(self):
        before = self.keep(complete())
        after = self.keep({**complete(), "causal_lm/pumpgraph/0": {"error": "stopped after 9 s"}})
        self.assertEqual(after["causal_lm/pumpgraph/0"], before["causal_lm/pumpgraph/0"])

    def test_a_row_without_anything_to_compare_is_not_kept(self):
        with self.assertRaisesRegex(ValueError, "causal_lm/pumpgraph/0: no plain row"):
            self.keep({"causal_lm/pumpgraph/0": complete()["causal_lm/pumpgraph/0"]})

    def test_nothing_is_measured_into_a_kept_file(self):
        self.keep(complete())
        with self.assertRaisesRegex(SystemExit, "holds kept rows"):
            program_command.main(["--programs", "gan", "--results", str(self.file), "--stop-after", "-1"])

    def test_the_document_shows_what_is_kept(self):
        results = support.ROOT / "docs" / "results"
        done = runs.load(results / "programs.jsonl")
        shown = (results / "programs.md").read_text()
        word = shown[shown.index("--programs ") + len("--programs "):].split()[0]
        chosen = program_command.choose(None if word.startswith("--") else word)
        self.assertEqual({key.split("/")[0] for key in done}, {program.name for program in chosen})
        text = program_table.markdown(chosen, done)
        self.assertEqual(shown[shown.index(text.splitlines()[0]):], text)


# Stands in for program_worker.py: writes figures for all rows but those that SKIP names.
WORKER = """
import json, os, sys
line = sys.stdin.readline()
if not line:
    sys.exit(0)
job = json.loads(line)
with open(job["results"], "a") as file:
    for row in job["rows"]:
        if row["kind"] != os.environ.get("SKIP"):
            figures = {"turn_ms": [1.0], "peak_bytes": 8, "job": job}
            file.write(json.dumps({"key": row["key"], "figures": figures}) + "\\n")
"""


class Driver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = Path(folder.name) / "results.jsonl"
        worker = Path(folder.name) / "worker.py"
        worker.write_text(WORKER)
        for patch in (mock.patch.object(program_command, "WORKER", worker), mock.patch.object(workers, "say"),
                      mock.patch.object(workers, "settle_link")):
            patch.start()
            self.addCleanup(patch.stop)

    def run_all(self, *arguments, **environment):
        parsed = program_command.parse_arguments(["--results", str(self.results), "--timeout", "20", *arguments])
        chosen, kinds = program_command.choose(parsed.programs), program_command.choose_kinds(parsed.rows)
        with mock.patch.dict(os.environ, environment):
            return program_command.run_all(parsed, chosen, kinds)

    def test_every_row_has_figures(self):
        done = self.run_all("--programs", "gan,causal_lm", "--turns", "9", "--timed", "3")
        self.assertEqual(sorted(done), sorted(f"{name}/{kind}/0" for name in ("causal_lm", "gan")
                                              for kind in program_rows.KINDS))
        job = done["gan/pumpgraph/0"]["job"]
        self.assertEqual((job["program"], job["budget_bytes"], job["turns"], job["timed"], job["warmup"]),
                         ("gan", 4, 9, 3, 1))

    def test_a_second_call_runs_only_what_failed(self):
        first = self.run_all("--programs", "gan", SKIP="graph")
        self.assertIn("no figures", first["gan/graph/0"]["error"])
        lines = len(self.results.read_text().splitlines())
        self.assertNotIn("error", self.run_all("--programs", "gan")["gan/graph/0"])
        self.assertEqual(len(self.results.read_text().splitlines()), lines + 1)

    def test_a_budget_without_a_peak_is_an_error_that_says_so(self):
        done = self.run_all("--programs", "gan", "--rows", "pumpgraph")
        self.assertIn("no eager row", done["gan/pumpgraph/0"]["error"])


class CommandLine(unittest.TestCase):
    def run_bench(self, *arguments):
        return subprocess.run([sys.executable, str(BENCH), *arguments], capture_output=True, text=True)

    def test_the_table_from_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path, copied = Path(folder) / "results.jsonl", Path(folder) / "table.md"
            path.write_text("".join(json.dumps({"key": key, "figures": figures}) + "\n"
                                    for key, figures in complete().items()))
            result = self.run_bench("--programs", "causal_lm", "--from", str(path), "--output", str(copied))
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(copied.read_text(), result.stdout)
            path.write_text(path.read_text().replace("52.0", "99.0"))
            result = self.run_bench("--programs=causal_lm", "--from", str(path))
        self.assertEqual(result.returncode, 1)
        self.assertIn("* BROKEN: the geometric mean", result.stdout)

    def test_unknown_names_are_refused(self):
        for arguments in (["--programs", "bert"], ["--programs", "--rows", "full"], ["--programs", "--turns", "3"],
                          ["--programs", "--from", "/nowhere"]):
            result = self.run_bench(*arguments)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("error:", result.stderr)

    def test_a_library_that_is_not_there_is_named(self):
        with mock.patch.object(program_command.importlib.util, "find_spec", lambda name: None):
            with self.assertRaisesRegex(SystemExit, "lora needs transformers, which is not installed"):
                program_command.check_libraries([GAN, program_rows.BY_NAME["lora"]])


if __name__ == "__main__":
    unittest.main()

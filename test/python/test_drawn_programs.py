# SPDX-License-Identifier: Apache-2.0
"""Programs are drawn alike for a seed, and the script that runs them finds what is wrong in them and what crashes."""

import ast
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

GPU = support.ROOT / "test" / "gpu"
sys.path.insert(0, str(GPU))

import drawn_programs  # noqa: E402
import program_draws  # noqa: E402

# Stands in for program_runs.py: what a program does is in its seed.
RUNS = """
import json, os, sys, time
def say(**line): print(json.dumps(line), flush=True)
for seed in map(int, sys.argv[1:]):
    say(begin=seed)
    if seed % 10 == 7:
        sys.stderr.write('Fatal Python error: Segmentation fault\\n  File "x.py", line 3 in step\\n')
        sys.stderr.flush()
        os.kill(os.getpid(), 11)
    if seed % 10 == 8:
        time.sleep(60)
    verdict = {5: "wrong", 6: "refused", 9: "uncounted"}.get(seed % 10, "equal")
    say(seed=seed, verdict=verdict, why="state \\"a%d\\" counts %d" % (seed, seed), moves=verdict == "equal", left=None)
    if verdict == "wrong":
        break
"""


class Draws(unittest.TestCase):
    programs = [program_draws.draw(seed) for seed in range(600)]

    def test_a_seed_gives_the_same_program(self):
        self.assertEqual(self.programs[:50], [program_draws.draw(seed) for seed in range(50)])
        self.assertGreater(len({program.describe() for program in self.programs}), 550)

    def test_every_habit_is_drawn(self):
        drawn = {habit for program in self.programs for habit in program.habits}
        self.assertEqual(drawn, set(program_draws.HABITS))

    def test_most_programs_can_be_followed(self):
        """At least half of them are to be equal, and not refused."""
        frozen = sum(not program_draws.FROZEN.keys().isdisjoint(program.habits) for program in self.programs)
        self.assertLess(frozen, 0.4 * len(self.programs))
        self.assertGreater(frozen, 0.2 * len(self.programs))

    def test_programs_need_more_than_the_budget(self):
        for program in self.programs:
            self.assertGreater(program_draws.needed_bytes(program), 1.6 * program_draws.BUDGET, program.describe())
            self.assertLess(program_draws.needed_bytes(program), 3.5 * program_draws.BUDGET, program.describe())

    def test_habits_get_what_they_need(self):
        for program in self.programs:
            habits = set(program.habits)
            for rivals in program_draws.RIVALS:
                self.assertLessEqual(len(habits.intersection(rivals)), 1, program.describe())
            if habits & {"scheduler", "writes_the_rate"}:
                self.assertTrue(program.tensor_rate, program.describe())
            if "keeps_gradients" in habits:
                self.assertEqual(program.zero, "start none")
            if "checkpointing" in habits:
                self.assertEqual(program.dropout, 0)

    def test_a_habit_can_be_left_out(self):
        for seed, program in enumerate(self.programs[:200]):
            if program.habits:
                without = program_draws.draw(seed, [program.habits[0]])
                self.assertEqual(without.habits, program.habits[1:])
                self.assertEqual(without.model, program.model)

    def test_what_is_drawn_can_be_run(self):
        """Without PyTorch, program_runs.py can only be read."""
        tree = ast.parse((GPU / "program_runs.py").read_text())
        habits = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)
                  and {"habit", "later"} & {name.id for name in node.decorator_list if isinstance(name, ast.Name)}]
        self.assertEqual(sorted(habits), sorted(program_draws.HABITS))
        models = next(node.value for node in tree.body if isinstance(node, ast.Assign)
                      and getattr(node.targets[0], "id", "") == "MODELS")
        self.assertEqual([key.value for key in models.keys], list(program_draws.MODELS))


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        script = Path(folder.name) / "runs.py"
        script.write_text(RUNS)
        self.command = [sys.executable, str(script)]

    def run_batch(self, seeds, limit_s=20.0):
        return [(result.seed, result.verdict) for result in drawn_programs.Batch(self.command, seeds, limit_s).run()]

    def test_a_batch_goes_on_after_what_ends_a_process(self):
        self.assertEqual(self.run_batch([1, 5, 2, 7, 3, 6]),
                         [(1, "equal"), (5, "wrong"), (2, "equal"), (7, "crashed"), (3, "equal"), (6, "refused")])

    def test_a_crash_is_told_with_its_place(self):
        result, = drawn_programs.Batch(self.command, [7]).run()
        self.assertRegex(result.why, "SIGSEGV.*x.py.*line 3")

    def test_what_ran_before_in_the_process_is_known(self):
        results = list(drawn_programs.Batch(self.command, [1, 2, 5, 3]).run())
        self.assertEqual([list(result.before) for result in results], [[], [1], [1, 2], []])
        self.assertIn("--only 1,2,5)", drawn_programs.line_of(results[2], ()))

    def test_a_program_that_hangs_is_a_crash(self):
        self.assertEqual(self.run_batch([1, 8, 2], limit_s=2.0), [(1, "equal"), (8, "crashed"), (2, "equal")])

    def test_no_program_begins_after_the_deadline(self):
        self.assertEqual(list(drawn_programs.Batch(self.command, [1, 2], deadline=0).run()), [])

    def test_a_process_that_cannot_begin_is_an_error(self):
        command = [sys.executable, "-c", "raise SystemExit('no such module')"]
        with self.assertRaisesRegex(drawn_programs.Failure, "no such module"):
            list(drawn_programs.Batch(command, [1]).run())

    def test_stopped_it_says_how_far_it_came(self):
        program = f"import drawn_programs; drawn_programs.judge([[1, 2], [6, 8]], {self.command!r}, 2, tells_all=True)"
        process = subprocess.Popen([sys.executable, "-c", program], cwd=GPU, stdout=subprocess.PIPE, text=True,
                                   start_new_session=True)
        seen = [process.stdout.readline() for _ in range(3 * 3)]  # three programs end, and the fourth sleeps
        os.killpg(process.pid, signal.SIGTERM)
        rest, _ = process.communicate(timeout=30)
        self.assertIn("stopped; so far 3 programs: 2 equal (2 moving data, 0 running kernels again), 1 refused", rest,
                      "".join(seen))
        self.assertEqual(process.returncode, 1)

    def judged(self, *seeds, batch=4):
        batches = [list(seeds[at:at + batch]) for at in range(0, len(seeds), batch)]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = drawn_programs.judge(batches, self.command, workers=2)
        return status, out.getvalue()

    def test_equal_and_refused_programs_pass(self):
        status, text = self.judged(1, 2, 3, 6, 16, 4, 11, 12)
        self.assertEqual(status, 0, text)
        self.assertIn("8 programs: 6 equal (6 moving data, 0 running kernels again), 2 refused, 0 wrong, 0 crashed",
                      text)
        self.assertIn("refused   2: state \"...\" counts #", text)

    def test_one_wrong_value_or_crash_does_not(self):
        for seed, what in ((5, "1 wrong"), (7, "1 crashed")):
            status, text = self.judged(1, 2, 3, 4, seed, 11)
            self.assertEqual(status, 1, text)
            self.assertIn(f"not passed: {what}", text)
            self.assertIn(f"again: --only {seed}", text)

    def test_refusing_most_does_not(self):
        status, text = self.judged(1, 6, 16, 26, 2)
        self.assertEqual(status, 1)
        self.assertIn("2 of 5 are equal, less than half", text)

    def test_what_does_not_count_is_said_and_may_not_be_much(self):
        status, text = self.judged(1, 2, 3, 9)
        self.assertEqual(status, 1)
        self.assertIn("1 programs do not count", text)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Planned rounds: drawn programs with loops under pump-graph-run --plan, on a driver whose streams run late.

A program prints the same as without pump-graph-run, wherever it leaves the round that is planned. Arguments before
those of unittest: --programs=COUNT.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

RUN, PROGRAM, LOOPS = (os.environ[name] for name in ("PUMPGRAPH_RUN", "PUMPGRAPH_PROGRAM", "PUMPGRAPH_LOOPS"))
ENVIRONMENT = dict(os.environ, LD_LIBRARY_PATH=os.environ["PUMPGRAPH_FAKE_CUDA"])
ENVIRONMENT.pop("PUMPGRAPH_LOG", None)
PROGRAMS = 200


def plain(*command, **environment):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
                          env=dict(ENVIRONMENT, **environment))


def planned(budget, *command, options=(), **environment):
    return plain(RUN, f"--budget={budget}MiB", "--plan", *options, "--", *command,
                 PUMPGRAPH_LOG="debug",
                 **{"PUMPGRAPH_FAKE_DEFERS": "7", "PUMPGRAPH_RUN_LINK": "20,20,30", **environment})


def rounds_in(said):
    return sum(int(count) for count in re.findall(r"planned: (\d+) rounds", said))


class Scenarios(unittest.TestCase):
    def same(self, budget, *arguments, **more):
        expected, got = plain(PROGRAM, "proc", *arguments), planned(budget, PROGRAM, "proc", *arguments, **more)
        self.assertEqual((got.stdout, got.returncode), (expected.stdout, expected.returncode), got.stderr)
        self.assertNotEqual(expected.stdout, "")
        return got.stderr

    def test_a_loop_is_planned_from_its_fourth_round_on(self):
        said = self.same(8, "rounds", "40")
        self.assertRegex(said, r"period 1, 13 calls and allocations, is planned; predicted [\d.]+ ms a round")
        self.assertRegex(said, r"planning took \d+\.\d s; \d+\.\d s passed without a plan")
        self.assertRegex(said, r"planned: 37 rounds of period 1, median [\d.]+ ms \(predicted [\d.]+\), in force [12] "
                               r"times, left 1 times, the last time by cuMemcpyDtoH_v2")

    def test_the_link_is_measured_and_memory_keeps_its_values(self):
        said = self.same(8, "rounds", "40", PUMPGRAPH_RUN_LINK="")
        self.assertRegex(said, r"the link moves [\d.]+ GB/s up, [\d.]+ down and [\d.]+ in both directions")
        self.assertGreater(rounds_in(said), 30, said)

    def test_a_round_is_planned_again_with_the_times_of_its_calls(self):
        said = self.same(8, "rounds", "40", PUMPGRAPH_FAKE_TIMES="1")
        self.assertRegex(said, r"with its calls' times, period 1 is predicted to take [\d.]+ ms a round, not [\d.]+")
        program = (LOOPS, "12", "60", "0")
        got = planned(10, *program, PUMPGRAPH_FAKE_TIMES="12", PUMPGRAPH_RUN_LINK="2,2,3")
        self.assertEqual(got.stdout, plain(*program).stdout, got.stderr)
        self.assertIn("period 1 is planned again with its calls' times; predicted", got.stderr)

    def test_the_report_has_a_page_for_each_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.same(6, "evaluated", "30", options=(f"--report={folder}",))
            self.assertRegex(said, r"\d+ calls came as planned, \d+ without a plan")
            [page] = Path(folder).glob("*-period-1.txt")
            text = page.read_text()
            self.assertRegex(text, r"period 1: 13 calls and allocations, \d+ rounds as planned, in force \d times\n"
                                   r"median [\d.]+ ms \(predicted [\d.]+\)\n"
                                   r"left \d times by scaleAndAdd\n")
            self.assertIn("predicted", text)

    def test_nothing_is_planned_without_the_option(self):
        result = plain(RUN, "--budget=8MiB", "--", PROGRAM, "proc", "rounds", "40")
        self.assertNotIn("planned", result.stderr)

    def test_what_fits_is_not_planned(self):
        self.assertIn("period 1 is not planned: all of it is on the device", self.same(64, "rounds", "40"))

    def test_an_evaluation_leaves_the_round_and_the_plan_returns(self):
        said = self.same(6, "evaluated", "60")
        self.assertRegex(said, r"the plan of period 1 is taken back: scaleAndAdd came instead of event 0 of 13")
        self.assertRegex(said, r"planned: \d+ rounds of period 1, .*, in force [3-9] times")

    def test_the_device_never_has_more_than_the_budget(self):
        with tempfile.TemporaryDirectory() as folder:
            peak = Path(folder, "peak")
            self.same(6, "rounds", "40", PUMPGRAPH_FAKE_PEAK=str(peak))
            self.assertLessEqual(int(peak.read_text()), 4)  # the stand-in of a page is beside the budget

    def test_without_room_to_take_it_back_no_plan_comes_into_force(self):
        said = self.same(6, "rounds", "40", options=("--host=10MiB",))
        self.assertIn("the plan of period 1 cannot come into force", said)
        self.assertEqual(rounds_in(said), 0)

    def test_threads_with_loops_of_their_own(self):
        for seed in range(1, 4):
            self.same(4, "allocating-threads", "3", PUMPGRAPH_FAKE_DEFERS=str(seed))


class Threads(unittest.TestCase):
    def test_another_thread_takes_plans_back_at_any_time(self):
        plans = 0  # that came into force: how many rounds the other thread leaves them depends on the machine
        for seed in range(1, 25):
            program = (LOOPS, str(seed), "60", "300")
            expected = plain(*program)
            got = planned(12 + 2 * (seed % 6), *program, "disturbed", PUMPGRAPH_FAKE_DEFERS=str(seed),
                          PUMPGRAPH_FAKE_TIMES=str(seed))
            self.assertEqual((got.stdout, got.returncode), (expected.stdout, 0), f"{program}\n{got.stderr[-2000:]}")
            plans += sum(int(count) for count in re.findall(r"in force (\d+) times", got.stderr))
        self.assertGreater(plans, 10)


class Failures(unittest.TestCase):
    def test_after_a_failure_values_are_right_or_the_program_gets_an_error(self):
        """Of one call of the driver, the program's own or one that a plan adds."""
        ends = {"right": 0, "refused": 0}
        functions = ("cuEventRecord", "cuStreamWaitEvent", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
                     "cuMemcpyDtoDAsync",
                     "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuCtxSynchronize", "cuEventCreate")
        for seed in range(66):
            program = (LOOPS, str(1000 + seed % 22), "16", "120")
            failing = f"{functions[seed % len(functions)]}:{11 + 17 * (seed // 3)}"
            expected = plain(*program).stdout.splitlines()
            got = planned(6 + 2 * (seed % 5), *program, PUMPGRAPH_FAKE_FAILS=failing)
            lines = [line for line in got.stdout.splitlines() if "error" not in line]
            self.assertEqual(lines, expected[:len(lines)], f"{program} {failing}\n{got.stderr[-2000:]}")
            self.assertIn(got.returncode, (0, 3), f"{program} {failing}\n{got.stderr[-2000:]}")
            ends["right" if got.returncode == 0 else "refused"] += 1
        self.assertGreater(min(ends.values()), 5, ends)

    def test_after_a_failure_while_the_link_is_measured_values_are_right(self):
        measuring = 0
        for seed in range(8):
            program = (LOOPS, str(1010 + seed), "16", "120")
            function, nth = (("cuMemcpyHtoDAsync", 21), ("cuMemcpyDtoHAsync", 21), ("cuCtxSynchronize", 21),
                             ("cuStreamCreate", 4))[seed % 4]
            failing = f"{function}:{nth + seed // 4}"
            got = planned(12, *program, PUMPGRAPH_FAKE_FAILS=failing, PUMPGRAPH_RUN_LINK="")
            if "measuring the link" not in got.stderr:
                continue  # it was another's call
            measuring += 1
            self.assertEqual((got.stdout, got.returncode), (plain(*program).stdout, 0),
                             f"{program} {failing}\n{got.stderr[-2000:]}")
        self.assertGreaterEqual(measuring, 6)


class DrawnPrograms(unittest.TestCase):
    def run_one(self, seed):
        """The rounds that came as planned, or what is wrong."""
        rounds, deviations = ((24, 150), (40, 400), (12, 40), (40, 0))[seed % 4]
        program = (LOOPS, str(seed), str(rounds), str(deviations))
        budget = 6 + 2 * (seed % 11)
        expected = plain(*program)
        got = planned(budget, *program, PUMPGRAPH_FAKE_DEFERS=str(seed), PUMPGRAPH_FAKE_TIMES=str(seed),
                      PUMPGRAPH_RUN_LINK="2,2,3")
        if expected.returncode != 0 or (got.stdout, got.returncode) != (expected.stdout, 0):
            return f"{' '.join(program)} with {budget} MiB: status {got.returncode}\n{got.stderr[-2000:]}"
        if "checker" in got.stderr or "lack a value" in got.stderr:
            return f"{' '.join(program)} with {budget} MiB: {got.stderr[-2000:]}"
        return rounds_in(got.stderr)

    def test_values_are_those_of_the_program(self):
        with ThreadPoolExecutor(2) as pool:
            results = list(pool.map(self.run_one, range(1, PROGRAMS + 1)))
        wrong = [result for result in results if isinstance(result, str)]
        self.assertEqual(wrong, [], "\n".join(wrong[:3]))
        self.assertGreater(sum(results), 4 * PROGRAMS)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1].startswith("--programs="):
        PROGRAMS = int(sys.argv.pop(1).split("=")[1])
    unittest.main()

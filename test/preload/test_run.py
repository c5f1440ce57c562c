# SPDX-License-Identifier: Apache-2.0
"""pump-graph-run with a program on a libcuda.so.1 that is the fake driver."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

RUN = os.environ["PUMPGRAPH_RUN"]
PROGRAM = os.environ["PUMPGRAPH_PROGRAM"]
ENVIRONMENT = dict(os.environ, LD_LIBRARY_PATH=os.environ["PUMPGRAPH_FAKE_CUDA"], PUMPGRAPH_FAKE_DEVICES="2")
ENVIRONMENT.pop("PUMPGRAPH_LOG", None)
WAYS = ("linked", "dlsym", "proc")


def plain(*command, **environment):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
                          env=dict(ENVIRONMENT, **environment))


def under(*arguments, options=("--budget=64MiB",), **environment):
    return plain(RUN, *options, "--", PROGRAM, *arguments, **environment)


class SameResults(unittest.TestCase):
    def same(self, *arguments, **more):
        """What the program prints and its exit status, without and with; returns the lines of pump-graph-run."""
        expected, got = plain(PROGRAM, *arguments), under(*arguments, **more)
        self.assertEqual(got.stdout, expected.stdout, got.stderr)
        self.assertEqual(got.returncode, expected.returncode)
        self.assertNotEqual(expected.stdout, "")
        return got.stderr

    def test_each_way_to_the_driver_is_seen(self):
        for way in WAYS:
            said = self.same(way, "rounds", "20")
            self.assertRegex(said, r"41 allocations, at most 10\.0 MiB at once", way)
            self.assertRegex(said, r"182 calls on the device; a period of 9 of them, found at call 18, for 20 rounds")

    def test_an_evaluation_every_ten_rounds_is_left_and_the_period_found_again(self):
        said = self.same("proc", "evaluated", "40")
        # The second evaluation makes a period of ten rounds and an evaluation.
        self.assertRegex(said, r"a period of 9 of them, found at call 18, for 27 rounds, left 2 times")

    def test_less_memory_than_the_program_takes(self):
        said = self.same("proc", "rounds", "20", options=("--budget=8MiB",))
        self.assertRegex(said, r"on the device at most 8\.0 MiB of a budget of 8\.0 MiB; in host memory at most")

    def test_threads(self):
        self.assertIn("7208 calls on the device", self.same("proc", "threads", "4"))

    def test_threads_that_allocate(self):
        for options in (("--budget=64MiB",), ("--budget=8MiB",)):
            self.assertIn("1604 allocations", self.same("proc", "allocating-threads", "4", options=options))

    def test_random_programs(self):
        for seed in range(1, 31):
            budget = ("--budget=6MiB", "--budget=12MiB", "--budget=256MiB")[seed % 3]
            with self.subTest(seed=seed, budget=budget):
                self.same("proc", "random", str(seed), options=(budget,))

    def test_a_program_that_closes_the_driver(self):
        self.assertIn("42 allocations", self.same("proc", "closing"))

    def test_the_exit_status_is_the_programs(self):
        for status in (0, 7):
            self.assertEqual(under("proc", "exit", str(status)).returncode, status)
        self.assertLess(under("proc", "abort").returncode, 0)

    def test_nothing_is_said_of_a_program_without_cuda(self):
        result = plain(RUN, "--budget=1GiB", "--", "/bin/sh", "-c", "echo text; exit 4")
        self.assertEqual((result.stdout, result.stderr, result.returncode), ("text\n", "", 4))


class Budget(unittest.TestCase):
    def test_memory_beyond_the_budget_and_the_host_is_out_of_memory(self):
        result = under("proc", "fill", options=("--budget=32MiB", "--host=8MiB"))
        self.assertEqual(result.stdout.splitlines()[:4],
                         ["free 32 total 32", "10 blocks, then 2", "free 0 total 32", "free 32 total 32"])
        self.assertIn("in host memory at most 8.0 MiB", result.stderr)

    def test_without_host_memory_the_budget_is_the_end(self):
        result = under("linked", "fill", options=("--budget=32MiB", "--host=0"))
        self.assertIn("8 blocks, then 2", result.stdout)
        self.assertNotIn("host memory", result.stderr)

    def test_memory_that_the_program_maps_counts(self):
        result = under("proc", "mapped", "8", options=("--budget=32MiB",))
        self.assertEqual(result.stdout.splitlines(),
                         ["create 0", "free 24 total 32", "free 24 total 32", "free 32 total 32"])

    def test_memory_that_the_program_maps_beyond_the_budget_is_out_of_memory(self):
        result = under("proc", "mapped", "80", options=("--budget=32MiB",))
        self.assertEqual(result.stdout.splitlines(), ["create 2", "free 32 total 32"])

    def test_the_device_never_has_more_than_the_budget(self):
        with tempfile.TemporaryDirectory() as folder:
            peak = Path(folder, "peak")
            for scenario in (("mixed",), ("fill",), ("rounds", "5")):
                result = under("proc", *scenario, options=("--budget=32MiB",), PUMPGRAPH_FAKE_PEAK=str(peak))
                self.assertEqual(result.returncode, 0, result.stdout)
                # The stand-in of a page is beside the budget.
                self.assertLessEqual(int(peak.read_text()), 17, scenario)
            self.assertNotIn("create 2", under("proc", "mixed", options=("--budget=32MiB",)).stdout)

    def test_memory_that_a_graph_works_in_stays_until_the_graph_is_gone(self):
        result = under("proc", "graph-memory")
        self.assertEqual(result.stdout, "other memory, value 2\nthe graph's memory\n", result.stderr)

    def test_nvml_tells_of_the_budget(self):
        self.assertEqual(plain(PROGRAM, "proc", "nvml").stdout, "1000 900 100\n1000 890 100\n")
        result = under("proc", "nvml", options=("--budget=32MiB",))
        self.assertEqual(result.stdout, "32 28 4\n32 28 4\n", result.stderr)

    def test_memory_of_a_capture_counts(self):
        result = under("proc", "capture", options=("--budget=32MiB",))
        self.assertEqual(result.stdout.splitlines()[:2], ["free 24 total 32", "free 28 total 32"])


class Refusals(unittest.TestCase):
    """One line, and the program goes on."""

    def goes_on(self, scenario, line):
        expected, got = plain(PROGRAM, "proc", scenario), under("proc", scenario)
        self.assertEqual(got.stdout, expected.stdout)
        self.assertEqual(got.returncode, expected.returncode)
        warnings = [said for said in got.stderr.splitlines() if "warning" in said]
        self.assertEqual(warnings, [f"pump-graph-run: warning: {line}: the program goes on without PumpGraph"])

    def test_memory_for_other_processes(self):
        self.goes_on("ipc", "cuIpcGetMemHandle shares memory with others")

    def test_a_second_device(self):
        self.goes_on("devices", "a second context, on device 1")

    def test_deep_binding(self):
        self.goes_on("deepbind", "libm.so.6 is opened with RTLD_DEEPBIND, so its CUDA calls cannot be seen")

    def test_a_namespace_of_its_own(self):
        self.goes_on("apart", "libm.so.6 is opened with dlmopen(), so its CUDA calls cannot be seen")

    def test_another_library_before_the_driver(self):
        hook = os.environ["PUMPGRAPH_OTHER_HOOK"]
        result = under("linked", "rounds", "5", LD_PRELOAD=hook)
        self.assertEqual(result.stdout, plain(PROGRAM, "linked", "rounds", "5").stdout, result.stderr)
        self.assertIn(f"warning: {hook} stands before the driver, too", result.stderr)

    def test_an_unknown_function_when_it_is_called_and_not_when_it_is_found(self):
        result = under("proc", "tomorrow")
        self.assertEqual(result.stdout.splitlines(), ["found", "42"])
        self.assertIn("cuLaunchTomorrow is called, which this version of PumpGraph does not know", result.stderr)

    def test_a_preload_without_the_launcher(self):
        library = Path(RUN).parents[1] / "lib" / "libpumpgraph_preload.so"
        result = plain(PROGRAM, "proc", "rounds", "3", LD_PRELOAD=str(library))
        self.assertEqual(result.returncode, 0)
        self.assertIn("does nothing by itself", result.stderr)


class Processes(unittest.TestCase):
    def test_a_fork_of_a_process_that_uses_cuda_is_left_alone(self):
        result = under("proc", "fork")
        self.assertRegex(result.stderr, r"process \d+, forked from one that uses CUDA, is left alone")
        self.assertIn("total 1024", result.stdout)

    def test_a_fork_ahead_of_cuda_is_followed(self):
        result = under("proc", "fork-first")
        self.assertRegex(result.stderr, r"process \d+ \(preload_program\), a child, has a budget of 64\.0 MiB")

    def test_a_child_that_is_started_is_followed(self):
        result = under("proc", "exec")
        self.assertRegex(result.stderr, r"process \d+ \(child\), a child, has a budget of 64\.0 MiB of its own")
        self.assertIn("47 calls on the device", result.stderr)

    def test_levels(self):
        self.assertEqual(under("proc", "rounds", "5", PUMPGRAPH_LOG="warning").stderr, "")
        self.assertEqual(under("proc", "ipc", PUMPGRAPH_LOG="error").stderr, "")
        self.assertIn("warning", under("proc", "ipc", PUMPGRAPH_LOG="warning").stderr)


class Report(unittest.TestCase):
    def test_a_period_is_a_step_that_pump_graph_opt_plans(self):
        with tempfile.TemporaryDirectory() as folder:
            result = under("proc", "rounds", "20", options=("--budget=64MiB", f"--report={folder}/new"))
            [path] = Path(folder, "new").glob("*-period-1.mlir")
            text = path.read_text()
            self.assertEqual(re.findall(r'pump.kernel "(\w+)"', text),
                             ["setFloats"] * 6 + ["copyFloats", "scaleAndAdd", "scaleAndAdd"], text + result.stderr)
            # Memory of a round has no value at its boundary; the loop's own has one.
            self.assertEqual(sorted(re.findall(r'pump.buffer "block\w+" private( live_in live_out|) size', text)),
                             ["", "", " live_in live_out"], text)
            opt = plain(os.environ["PUMPGRAPH_OPT"], str(path), "--budget=8MiB", "--report=json")
            self.assertEqual(opt.returncode, 0, opt.stderr)
            self.assertIn("predicted", opt.stdout)

    def test_waits_are_edges(self):
        with tempfile.TemporaryDirectory() as folder:
            result = under("proc", "streams", "6", options=("--budget=64MiB", f"--report={folder}"))
            text = max((path.read_text() for path in Path(folder).glob("*.mlir")), key=len)
            after = {int(node): {int(each) for each in re.findall(r"%k(\d+)", edges or "")} for node, edges in
                     re.findall(r'%k(\d+) = pump.kernel "\w+" node\(\d+\)(?: after\(([^)]*)\))?', text)}
            self.assertEqual(len(after), 36, text + result.stderr)
            # The first calls of the two streams that wait for nothing in this round; the call behind both streams.
            self.assertEqual([len(before) for before in after.values()].count(0), 2, text)
            [joined] = [node for node, before in after.items() if len(before) == 2]
            self.assertIn(joined - 19, after[joined], text)  # nine calls each of the other and the third stream before

    def test_a_folder_that_cannot_be_is_said(self):
        result = under("proc", "rounds", "20", options=("--budget=64MiB", "--report=/proc/none"))
        self.assertEqual(result.returncode, 0)
        self.assertIn("error: the report /proc/none/", result.stderr)


RESOLVE = """
import ctypes, sys
cuda, preload = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
for name, version, flags, symbol in (
        ("cuLaunchKernel", 13000, 0, "cuLaunchKernel"), ("cuLaunchKernel", 13000, 1, "cuLaunchKernel"),
        ("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz"), ("cuMemAlloc", 13000, 2, "cuMemAlloc_v2"),
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"), ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"),
        ("cuStreamBeginCapture", 10010, 0, "cuStreamBeginCapture_v2"),
        ("cuStreamBeginCapture", 99000, 2, "cuStreamBeginCapture_v2_ptsz"),
        ("cuGraphAddEmptyNode", 13000, 0, None)):
    found = ctypes.c_void_p()
    assert cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), None) == 0
    if symbol:
        assert found.value == ctypes.cast(preload[symbol], ctypes.c_void_p).value, (name, version, flags, symbol)
    else:
        assert not hasattr(preload, name)
for name in ("cuMemAlloc_v2", "cuLaunchKernel"):
    assert ctypes.cast(cuda[name], ctypes.c_void_p).value == ctypes.cast(preload[name], ctypes.c_void_p).value
print("as meant")
"""


class Versions(unittest.TestCase):
    def test_names_versions_and_streams_lead_to_their_symbols(self):
        library = str(Path(RUN).parents[1] / "lib" / "libpumpgraph_preload.so")
        result = plain(RUN, "--budget=1GiB", "--", sys.executable, "-c", RESOLVE, library)
        self.assertEqual((result.stdout, result.returncode), ("as meant\n", 0), result.stderr)


class CommandLine(unittest.TestCase):
    def test_errors_say_what_to_write(self):
        for arguments, message in (
                (["--", "true"], "there is no budget; write --budget=16GiB"),
                (["--budget=16GiB"], "there is no program; write it behind --"),
                (["--budget=much", "--", "true"], "--budget=much: that is no size; write 16GiB or 512MiB"),
                (["--budget=-1", "--", "true"], "--budget=-1: that is no size"),
                (["--budget=0", "--", "true"], "--budget=0: no program runs without device memory"),
                (["--budget", "1GiB", "--", "true"], "--budget: an option is written --budget=VALUE"),
                (["--speed=1", "--", "true"], "--speed: there is no such option; --help lists them"),
                (["--budget=1GiB", "--mode=fast", "--", "true"], "--mode=fast: there is no such mode")):
            result = plain(RUN, *arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(f"pump-graph-run: error: {message}", result.stderr)

    def test_a_level_that_there_is_not(self):
        result = plain(RUN, "--budget=1GiB", "--", "true", PUMPGRAPH_LOG="loud")
        self.assertEqual(result.returncode, 2)
        self.assertIn("PUMPGRAPH_LOG=loud: write error, warning, info or debug", result.stderr)

    def test_a_program_that_is_not_there(self):
        result = plain(RUN, "--budget=1GiB", "--", "/no/program")
        self.assertEqual(result.returncode, 127)
        self.assertIn("/no/program: No such file or directory", result.stderr)

    def test_help(self):
        result = plain(RUN, "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("usage: pump-graph-run --budget=SIZE", result.stdout)

    def test_other_preloads_stay(self):
        result = plain(RUN, "--budget=1GiB", "--", "/bin/sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD="libm.so.6")
        self.assertRegex(result.stdout, r"/libpumpgraph_preload\.so:libm\.so\.6$")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs everything that needs a GPU: `tools/dev gpu-test`. Each test is a process of its own, but those of graphed.

Without a GPU it fails; nothing is skipped but memcheck where compute-sanitizer is not installed, and models whose
library is not, which is said.
"""

import argparse
import concurrent.futures
import ctypes
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import analytics_reference

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).resolve().parent / "torch_cases.py"
GRAPHED = Path(__file__).resolve().parent / "graphed_cases.py"
HOST_STATE = Path(__file__).resolve().parent / "host_state_cases.py"
CUPY = Path(__file__).resolve().parent / "cupy_cases.py"
MEMORY = Path(__file__).resolve().parent / "memory_cases.py"
REMATERIALIZE = Path(__file__).resolve().parent / "rematerialize_cases.py"
DECODE = Path(__file__).resolve().parent / "decode_cases.py"
TRAINERS = Path(__file__).resolve().parent / "trainer_cases.py"
OBSERVED = Path(__file__).resolve().parent / "observe_models.py"
MODELS = Path(__file__).resolve().parent / "unknown_models.py"
DRAWN = Path(__file__).resolve().parent / "drawn_programs.py"
PRELOAD = Path(__file__).resolve().parent / "preload_cases.py"
AGREEMENT = Path(__file__).resolve().parent / "ranks_agreement.py"
RANKS = Path(__file__).resolve().parent / "ranks_cases.py"
OF_SEVERAL_RANKS = ["rank_is_killed"]
LOOP = ROOT / "docs" / "examples" / "pytorch" / "loop.py"
LIBRARIES = ("transformers", "torchvision", "torch_geometric")
LIBRARIES_OF_TRAINERS = ("transformers", "lightning", "accelerate")
EXAMPLE = "pumpgraph-example-transformer"
ANALYTICS = "pumpgraph-example-analytics"
# About 900 MB at the peak, and about 130 MB for memcheck, which makes kernels many times slower.
SMALL = ["--layers", "6", "--width", "512", "--heads", "8", "--batch", "4", "--length", "512", "--words", "4096"]
TINY = ["--layers", "4", "--width", "256", "--heads", "4", "--batch", "4", "--length", "256", "--words", "1024"]


class Failure(Exception):
    """A test failed; the text says how."""


def gpu_count():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


class Tests:
    """The tests by name. `folder` holds what one leaves for another."""

    def __init__(self, build, folder, timeout, drawn=(), drawn_s=0, ranks=1):
        self.build, self.folder, self.timeout, self.drawn, self.drawn_s = build, folder, timeout, drawn, drawn_s
        self.ranks = ranks
        self.measuring = threading.Lock()

    def all(self):
        yield "runtime_smoke", lambda: self.run([str(self.build / "bin" / "runtime_smoke")])
        for case in self.managed_cases():
            yield case, lambda case=case: self.run([str(self.build / "bin" / "runtime_smoke"), "--only", case])
        yield "managed_killed", self.managed_killed
        yield "graphed.plain", lambda: self.run([sys.executable, str(GRAPHED), "--plain", str(self.folder)])
        yield "graphed.overhead", lambda: self.graphed_cases("overhead")
        yield "graphed.between_replays", lambda: self.graphed_cases("between_replays", says=True)
        yield "graphed.turns_at_once", lambda: self.graphed_cases("turns_at_once", says=True)
        yield "graphed.warm_up_at_half", lambda: self.graphed_cases("warm_up_at_half", says=True)
        yield "graphed.cases", self.graphed_cases
        yield "host_state.cases", lambda: self.cases(HOST_STATE)
        yield "loop", self.loop
        yield "guide", self.guide
        if (self.build / "bin" / "preload_static").is_file():
            yield "preload", self.preload
        else:
            print("note: built without pump-graph-run; preload_cases.py is not run")
        yield "drawn_programs", self.drawn_programs
        yield "ranks.agreement_of_processes", lambda: self.shown([sys.executable, str(AGREEMENT)])
        absent = [library for library in LIBRARIES if not importlib.util.find_spec(library)]
        if absent:
            print(f"note: {', '.join(absent)} not installed; the models of unknown_models.py are not run")
        else:
            yield "models", self.unknown_models
        for model in ("resnet50", "gpt2"):
            if model == "gpt2" or "torchvision" not in absent:
                yield f"observe.{model}", lambda model=model: self.observe_model(model)
        if (self.build / "bin" / "observe_corpus").is_file():
            yield "observe.corpus", self.observe_corpus
        else:
            print("note: built without the Clang plugin; what it says of kernels is not compared with what they do")
        for case in self.torch_cases():
            yield f"torch.{case}", lambda case=case: self.run([sys.executable, str(CASES), case, str(self.folder)])
        for case in self.torch_cases(MEMORY):
            yield f"memory.{case}", lambda case=case: self.run([sys.executable, str(MEMORY), case])
        for case in self.torch_cases(REMATERIALIZE):
            yield f"rematerialize.{case}", lambda case=case: self.run([sys.executable, str(REMATERIALIZE), case])
        if importlib.util.find_spec("cupy"):
            for case in self.torch_cases(CUPY):
                yield f"cupy.{case}", lambda case=case: self.shown([sys.executable, str(CUPY), case])
        else:
            print("note: CuPy is not installed; cupy_cases.py is not run")
        cases = self.torch_cases(RANKS)
        if self.ranks == 1:
            print(f"note: {', '.join(OF_SEVERAL_RANKS)} needs --ranks 2, and is not run")
            cases = [case for case in cases if case not in OF_SEVERAL_RANKS]
        for case in cases:
            yield f"ranks.{case}", lambda case=case: self.on_ranks([sys.executable, str(RANKS), case])
        if importlib.util.find_spec("transformers"):
            for case in self.torch_cases(DECODE):
                yield f"decode.{case}", lambda case=case: self.shown([sys.executable, str(DECODE), case])
        else:
            print("note: transformers is not installed; decode_cases.py is not run")
        absent = [library for library in LIBRARIES_OF_TRAINERS if not importlib.util.find_spec(library)]
        if absent:
            print(f"note: {', '.join(absent)} not installed; trainer_cases.py is not run")
        else:
            for case in self.torch_cases(TRAINERS):
                yield f"trainer.{case}", lambda case=case: self.shown([sys.executable, str(TRAINERS), case])
        yield "cpp.analytics", self.cpp_analytics
        yield "cpp.losses", self.cpp_losses
        yield "cpp.allocated_once", self.cpp_allocated_once
        yield "cpp.validate", lambda: self.example(SMALL, "--budget", self.budget(SMALL, 0.5), "--validate")
        yield "cpp.budget_below_one_kernel", self.cpp_hosted
        yield "cpp.budget_below_what_stays", self.cpp_too_small
        if shutil.which("compute-sanitizer"):
            yield "cpp.memcheck", self.cpp_memcheck
        else:
            print("note: compute-sanitizer is not installed; memcheck is not run")

    def managed_cases(self):
        """Each a process of its own, for a wait that nobody ends would hang it."""
        _, text = self.run([str(self.build / "bin" / "runtime_smoke"), "--list-managed"])
        return text.split()

    def managed_killed(self):
        """A program killed in the middle of a replay leaves nothing behind: the next one finds all memory free."""
        command = [str(self.build / "bin" / "runtime_smoke"), "--only", "managed_replays"]
        for delay in (1.0, 3.0, 5.0):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.kill()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                raise Failure("the killed process does not end") from None
        self.run([str(self.build / "bin" / "runtime_smoke"), "--only", "managed_pointers"])

    @staticmethod
    def torch_cases(file=CASES):
        listed = re.search(r"^CASES = \[(.*?)^\]", file.read_text(), flags=re.S | re.M).group(1)
        return re.findall(r"\w+", listed)

    def graphed_cases(self, *which, says=False):
        text = self.cases(GRAPHED, str(self.folder), *which)
        if says:
            print(text.strip()[-1000:], flush=True)

    def cases(self, program, *arguments):
        """All in one process, for most of the time of one alone is PyTorch's start. Returns what they say."""
        status, text = self.run([sys.executable, str(program), *arguments], may_fail=True)
        if status != 0:
            parts = re.split(r"^(?=ok     |FAILED )", text, flags=re.M)
            failed = "".join(part for part in parts if not part.startswith("ok     ")).strip()[-8000:]
            raise Failure(failed or f"exit status {status}, the last of it:\n{text.strip()[-2000:]}")
        return text

    def preload(self):
        """Says what a launch costs."""
        print(self.cases(PRELOAD, "--build-dir", str(self.build)).rstrip(), flush=True)

    def loop(self):
        """The program of docs/guide/pytorch.md, under half of what it takes, has the losses of the plain one."""

        def losses(name, *options):
            file = self.folder / f"loop-{name}.losses"
            _, text = self.run([sys.executable, str(LOOP), "--steps", "24", "--losses", str(file), *options])
            return file.read_text().split(), text

        expected, text = losses("plain", "--plain")
        peak = float(re.search(r"^peak +([0-9.]+) GiB", text, flags=re.M).group(1))
        got, _ = losses("half", "--budget", f"{peak / 2:.2f}GiB")
        if len(expected) != 24 or got != expected:
            raise Failure(f"the losses under {peak / 2:.2f} GiB differ from the plain loop's")

    def guide(self):
        """The commands of the guides that need a GPU: test/dev/guide.py."""
        sys.path.insert(0, str(ROOT / "test" / "dev"))
        import guide
        for document in sorted((ROOT / "docs" / "guide").glob("*.md")):
            if document.stem == "cupy" and not importlib.util.find_spec("cupy"):
                print("note: CuPy is not installed; the commands of its guide are not run")
                continue
            with tempfile.TemporaryDirectory() as folder:
                guide.prepare(Path(folder), ROOT, self.build)
                try:
                    guide.run_document(document, ["gpu"], Path(folder))
                except guide.Failure as failure:
                    raise Failure(f"{document.name}: {failure}") from None

    def drawn_programs(self):
        """Says what became of them, and every one that went wrong, with its seed."""
        timeout = self.timeout + self.drawn_s
        status, text = self.run([sys.executable, str(DRAWN), *self.drawn], may_fail=True, timeout=timeout)
        if status != 0:
            raise Failure(text.strip()[-16000:])
        print(text.strip()[-4000:], flush=True)

    def unknown_models(self):
        """Side by side: nothing is timed, and most of the time of one is spent on the host."""
        names = re.search(r"for maker in \((.*?)\)\}", MODELS.read_text()).group(1).split(", ")

        def train(name):
            self.run([sys.executable, str(MODELS), "--plain", str(self.folder), name])
            return self.run([sys.executable, str(MODELS), str(self.folder), name], may_fail=True)

        with concurrent.futures.ThreadPoolExecutor(len(names)) as pool:
            results = list(pool.map(train, names))
        print("\n".join(text.strip()[-500:] for _, text in results), flush=True)
        if any(status != 0 for status, _ in results):
            raise Failure("not every model does what is written beside it")

    def on_ranks(self, command):
        """One process a device, with the variables that torchrun sets. The first rank that fails is the failure."""
        if self.ranks == 1:
            _, text = self.run(command)
            print(text.strip()[-4000:], flush=True)
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]

        def rank(number):
            return self.run(command, may_fail=True, variables={
                "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(self.ranks),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})

        with concurrent.futures.ThreadPoolExecutor(self.ranks) as pool:
            results = list(pool.map(rank, range(self.ranks)))
        print(results[0][1].strip()[-4000:], flush=True)
        for number, (status, text) in enumerate(results):
            if status != 0:
                raise Failure(f"rank {number}: exit status {status}\n    " + "\n    ".join(text.splitlines()[-12:]))

    def shown(self, command):
        _, text = self.run(command)
        print(text.strip()[-500:], flush=True)

    def observe_corpus(self):
        _, text = self.run([str(self.build / "bin" / "observe_corpus")])
        print("\n".join(text.strip().splitlines()[-2:]), flush=True)

    def observe_model(self, model):
        _, text = self.run([sys.executable, str(OBSERVED), model])
        print(text.strip()[-1000:], flush=True)

    def run(self, command, may_fail=False, timeout=None, variables=None):
        timeout = timeout or self.timeout
        environment = dict(os.environ, PUMPGRAPH_LIBRARY=str(self.build / "lib" / "libpumpgraph.so"),
                           **(variables or {}))
        try:
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                                    env=environment)
        except subprocess.TimeoutExpired as late:
            last = (late.stdout or b"").decode("utf-8", "replace").strip()[-2000:]
            raise Failure(f"still running after {timeout:.0f} s, the last of it:\n{last}") from None
        except OSError as error:
            raise Failure(str(error)) from None
        text = result.stdout.decode("utf-8", "replace")
        if result.returncode != 0 and not may_fail:
            last = "\n    ".join(text.strip().splitlines()[-12:])
            raise Failure(f"exit status {result.returncode}\n    {last}")
        return result.returncode, text

    def example(self, size, *arguments, prefix=(), may_fail=False, program=EXAMPLE):
        command = [*prefix, str(self.build / "bin" / program), *size, "--steps", "10", "--timed", "0", *arguments]
        return self.run(command, may_fail)

    def plain(self, size, program=EXAMPLE):
        """The figures of the unmodified C++ step of this size, run once."""
        figures = self.folder / (f"{program}-" + "-".join(size[1::2]) + ".json")
        with self.measuring:
            if not figures.is_file():
                self.example(size, "--plain", "--json", str(figures), program=program)
        return json.loads(figures.read_text())

    def budget(self, size, share, program=EXAMPLE):
        return str(int(self.plain(size, program)["peak_bytes"] * share))

    def cpp_analytics(self):
        """The query's results are equal in all ways, and under budgets it keeps to them."""
        def query(*arguments, rows=1 << 26):
            _, text = self.run([str(self.build / "bin" / ANALYTICS), "--rows", str(rows), *arguments])
            return dict(line.split(maxsplit=1) for line in text.splitlines() if line.startswith(
                ("result", "time", "peak", "plan")))

        few = 1 << 17
        for way in (["--plain"], ["--chunks", "4"], []):
            if (found := query(*way, rows=few)["result"]) != (right := analytics_reference.result(few)):
                raise Failure(f"the result of {few} rows {way} is {found}; computed on the host it is {right}")
        plain = query("--plain")
        bytes_of_all = int(plain["peak"].split()[0])
        ways = {"in memory": plain, "16 chunks by hand": query("--chunks", "16"), "unlimited": query()}
        for share in (2, 4):
            budget = bytes_of_all // share
            for order in ([], ["--by-batch"]):
                ways[" ".join([f"at 1/{share}", *order])] = found = query("--budget", str(budget), *order)
                if int(found["peak"].split()[0]) > budget:
                    raise Failure(f"a budget of {budget} bytes: {found['peak']} on the device")
        for way, found in ways.items():
            print(f"{way}: {found['time']}; {found['peak']}; {found.get('plan', 'no plan')}", flush=True)
            if found["result"] != plain["result"]:
                raise Failure(f"the result {way} is {found['result']}, and {plain['result']} in memory")

    def cpp_losses(self):
        expected = self.plain(SMALL)["losses"]
        values = [float.fromhex(loss) for loss in expected]
        if not values or values[-1] >= values[0]:
            raise Failure(f"the unmodified step's loss does not fall: {values}")
        for share in (2.0, 0.75, 0.5):
            losses = self.folder / f"cpp-{share}.losses"
            self.example(SMALL, "--budget", self.budget(SMALL, share), "--losses", str(losses))
            if losses.read_text().split() != expected:
                raise Failure(f"the losses at {share:.0%} of the peak differ from the unmodified step's")

    def cpp_allocated_once(self):
        # Most of it is in host memory when the step is captured, among it what copies of the step lead to.
        size = [*SMALL, "--allocate", "once"]
        for program in (EXAMPLE, f"{EXAMPLE}-annotated"):
            if not (self.build / "bin" / program).exists():
                continue
            losses = self.folder / f"{program}-once.losses"
            source = [*size, "--matmul", "source"]
            budget = self.budget(source, 0.5, program)
            self.example(source, "--budget", budget, "--losses", str(losses), program=program)
            if losses.read_text().split() != self.plain(source, program)["losses"]:
                raise Failure(f"the losses of {program} differ from the unmodified step's")

    def cpp_hosted(self):
        # The cuBLAS workspace and small tensors take 34 MiB. What is left is two pages, as the copies of the step need:
        # their operands are never hosted. The widest product needs four.
        losses = self.folder / "cpp-hosted.losses"
        self.example(TINY, "--budget", "38MiB", "--losses", str(losses))
        if losses.read_text().split() != self.plain(TINY)["losses"]:
            raise Failure("the losses with operands in host memory differ from the unmodified step's")

    def cpp_too_small(self):
        status, text = self.example(TINY, "--budget", "16MiB", may_fail=True)
        if status != 1 or not re.search(r"error: .*need", text):
            raise Failure(f"exit status {status}, expected 1 and what is needed:\n    {text.strip()[-500:]}")

    def cpp_memcheck(self):
        # A kernel's parameters end where the driver refuses to describe one more: no error of the program's.
        prefix = ("compute-sanitizer", "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9")
        _, text = self.example(TINY, "--budget", self.budget(TINY, 0.6), "--steps", "2", prefix=prefix)
        if "ERROR SUMMARY: 0 errors" not in text:
            raise Failure("memcheck did not report 0 errors:\n    " + text.strip()[-500:])


COSTS = "torch.measure_and_costs"
AFTER_COSTS = ("torch.costs_are_used", "torch.replans_by_itself", "torch.plans_aside")


def needs(name):
    """The tests whose results this one uses, where there are such."""
    return {f"{name.split('.')[0]}.plain"} | ({COSTS} if name in AFTER_COSTS else set())


def choose(names, text):
    """Those whose name holds the text, and what they need."""
    wanted = {name for name in names if text in name}
    wanted = wanted.union(*map(needs, wanted))
    return [name for name in names if name in wanted]


def is_first(name):
    """Whether other tests need what this one leaves."""
    return name.endswith(".plain") or name == COSTS


def runs_alone(name):
    """Whether it looks at times, or at what all programs have of the card's memory, or takes all processors."""
    alone = ("runtime_smoke", "graphed.overhead", "graphed.between_replays", "graphed.turns_at_once",
             "graphed.warm_up_at_half", "torch.a_thousand_replays", "torch.estimates_count_arithmetic",
             "drawn_programs", "preload", "cupy.analytics_beyond_budget")
    return name in alone or name.startswith(("managed", "ranks.", "rematerialize."))


def report(name, test):
    """Runs a test and says how it went. Returns whether it passed."""
    start = time.monotonic()
    try:
        test()
    except Failure as failure:
        print(f"FAILED {name}: {failure}", flush=True)
        return False
    print(f"ok     {name} ({time.monotonic() - start:.1f} s)", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build")
    parser.add_argument("--filter", default="", help="only tests whose name holds this text, and those whose results "
                        "they use")
    parser.add_argument("--jobs", type=int, default=1, help="tests side by side, each with memory of its own on the "
                        "card; those that look at times or at the card's free memory, or take all processors, run "
                        "alone, after the others (%(default)s)")
    parser.add_argument("--ranks", type=int, default=1, help="processes of each test of ranks_cases.py, with a device "
                        "each (%(default)s)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds a test may take (%(default)s)")
    drawing = parser.add_argument_group("the test that draws programs (drawn_programs.py)")
    drawing.add_argument("--programs", type=int, default=200, help="how many (%(default)s)")
    drawing.add_argument("--first-seed", type=int, default=1, help="the others follow it (%(default)s)")
    drawing.add_argument("--seconds", type=float, default=280, help="begin no program after so many (%(default)s)")
    arguments = parser.parse_args()
    drawn = ("--programs", str(arguments.programs), "--first-seed", str(arguments.first_seed),
             "--seconds", str(arguments.seconds))
    if gpu_count() == 0:
        sys.exit("gpu-test: error: no GPU; the CUDA driver finds no device")
    if not 1 <= arguments.ranks <= gpu_count():
        sys.exit(f"gpu-test: error: --ranks {arguments.ranks}; there are {gpu_count()} devices")
    with tempfile.TemporaryDirectory() as folder:
        tests = list(Tests(arguments.build_dir.resolve(), Path(folder), arguments.timeout, drawn,
                           arguments.seconds, arguments.ranks).all())
        chosen = choose([name for name, _ in tests], arguments.filter)
        tests = [(name, test) for name, test in tests if name in chosen]
        passed = [report(name, test) for name, test in tests if is_first(name)]
        with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
            untimed = [pair for pair in tests if not is_first(pair[0]) and not runs_alone(pair[0])]
            passed += pool.map(lambda pair: report(*pair), untimed)
        passed += [report(name, test) for name, test in tests if runs_alone(name)]
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())

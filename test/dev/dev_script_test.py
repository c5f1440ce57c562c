#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/dev in situations a developer's machine is rarely in: each test runs a copy of the script with a PATH of its
own, in which the programs that install, build or need a GPU are stand-ins that write down how they were called."""
import contextlib
import json
import os
import pathlib
import pty
import shutil
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]

# The real programs that the script may use for its own housekeeping.
HOUSEKEEPING = """awk bash cat ctest date dirname env false find git grep head mkdir mktemp nproc readlink rm sed sh
sleep sort tail touch true xargs""".split()


class DevScript(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pumpgraph-dev-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.tree = self.folder / "tree"
        shutil.copytree(REPOSITORY / "tools" / "dev.d", self.tree / "tools" / "dev.d",
                        ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "tools" / "dev", self.tree / "tools" / "dev")
        self.path = self.folder / "bin"
        self.path.mkdir()
        self.calls = self.folder / "calls"
        self.calls.touch()
        for name in HOUSEKEEPING:
            found = shutil.which(name)
            self.assertIsNotNone(found, name)
            (self.path / name).symlink_to(found)
        (self.path / "python3").symlink_to(sys.executable)
        self.stand_in("id", "echo 0")
        self.stand_in("cmake")
        self.stand_in("ninja")
        self.everything_is_installed()

    def stand_in(self, name, body=""):
        """A program `name` that writes down its arguments and then runs `body`."""
        program = self.path / name
        program.unlink(missing_ok=True)
        program.write_text(f'#!/bin/bash\necho "{name} $*" >>"{self.calls}"\n{body}\n')
        program.chmod(0o755)

    def everything_is_installed(self):
        self.stand_in("dpkg-query", 'for word; do [[ $word == -* ]] || echo "$word installed"; done')

    def only_these_are_missing(self, *packages):
        self.stand_in("dpkg-query", f"""missing=0
for word; do
  case $word in
    -*) ;;
    {'|'.join(packages)}) [[ -e {self.folder}/installed ]] && echo "$word installed" || missing=1 ;;
    *) echo "$word installed" ;;
  esac
done
exit $missing""")

    def dev(self, *arguments, **variables):
        environment = {"PATH": str(self.path), "HOME": str(self.folder), "CUDA_VISIBLE_DEVICES": "", **variables}
        return subprocess.run([str(self.tree / "tools" / "dev"), *arguments], env=environment, cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=120)

    def called(self, name):
        return [line for line in self.calls.read_text().splitlines() if line.split()[0] == name]

    def make_build_folder(self, **commands):
        """The build folder, with these ctest tests in it."""
        build = self.tree / "build"
        build.mkdir()
        lines = [f"add_test({name} {command})" for name, command in commands.items()]
        (build / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")
        # Where the same is built with sanitizers: one test each.
        for sanitizer in ("address", "thread"):
            (build / sanitizer).mkdir()
            (build / sanitizer / "CTestTestfile.cmake").write_text(
                "add_test(watched true)\nset_tests_properties(watched PROPERTIES LABELS threads)\n")
        return build

    # ---- the command line

    def test_help_names_every_command(self):
        result = self.dev("help")
        self.assertEqual(result.returncode, 0)
        for command in ("test build demo gpu-test gpu-bench plan-bench wheel install-test doctor format lint docs "
                        "help").split():
            self.assertIn(f"\n  {command} ", result.stdout)

    def test_unknown_command_prints_the_help_and_exits_2(self):
        result = self.dev("tset")
        self.assertEqual(result.returncode, 2)
        self.assertIn('unknown command "tset"', result.stderr)
        self.assertIn("usage: tools/dev", result.stderr)
        self.assertEqual(self.calls.read_text(), "")

    def test_build_dir_without_a_folder_is_refused(self):
        result = self.dev("build", "--build-dir")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--build-dir needs a folder", result.stderr)

    # ---- installing

    def test_neither_root_nor_sudo_prints_one_apt_line_and_stops(self):
        for command in ("test", "build", "demo"):
            with self.subTest(command):
                self.stand_in("id", "echo 1000")
                self.only_these_are_missing("ninja-build", "libfmt-dev")
                result = self.dev(command)
                self.assertEqual(result.returncode, 1)
                apt_lines = [line for line in result.stderr.splitlines() if line.startswith("apt-get")]
                self.assertEqual(apt_lines, ["apt-get update && apt-get install -y --no-install-recommends "
                                             "ninja-build libfmt-dev"])
                self.assertEqual(self.called("cmake"), [])

    def test_sudo_that_refuses_counts_as_no_sudo(self):
        self.stand_in("id", "echo 1000")
        self.stand_in("sudo", "exit 1")
        self.only_these_are_missing("ninja-build")
        result = self.dev("build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--no-install-recommends ninja-build\n", result.stderr)
        self.assertEqual(self.called("sudo"), ["sudo -n true"])

    def test_sudo_installs(self):
        self.stand_in("id", "echo 1000")
        self.stand_in("sudo", '[[ $1 != -n ]] || shift; exec "$@"')
        self.stand_in("apt-get")
        self.only_these_are_missing("ninja-build")
        self.assertEqual(self.dev("build").returncode, 0)
        self.assertTrue(self.called("sudo")[-1].startswith("sudo -n env DEBIAN_FRONTEND=noninteractive apt-get"))
        self.assertTrue(self.called("apt-get")[-1].endswith("install --no-install-recommends ninja-build"))

    def test_nothing_missing_touches_neither_apt_nor_sudo(self):
        self.stand_in("id", "echo 1000")
        self.stand_in("apt-get", "exit 1")
        self.assertEqual(self.dev("build").returncode, 0)
        self.assertEqual(self.called("apt-get") + self.called("sudo"), [])

    def test_lists_are_refreshed_only_when_they_do_not_know_a_package(self):
        self.only_these_are_missing("clang-format-22")
        self.stand_in("apt-get")
        self.assertEqual(self.dev("build").returncode, 0)
        self.assertNotIn("update", self.calls.read_text())

        self.stand_in("apt-get",
                      f'[[ " $* " != *" update "* ]] || touch {self.folder}/updated; [[ -e {self.folder}/updated ]]')
        self.assertEqual(self.dev("build").returncode, 0)
        self.assertEqual(sum(" update" in call for call in self.called("apt-get")), 1)

    def test_apt_that_fails_shows_its_log_and_stops(self):
        self.only_these_are_missing("libmlir-22-dev")
        self.stand_in("apt-get", "echo E: Unable to locate package libmlir-22-dev; exit 100")
        result = self.dev("build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("E: Unable to locate package libmlir-22-dev", result.stderr)
        self.assertIn("bookworm-security", result.stderr)
        self.assertEqual(self.called("cmake"), [])

    # ---- building and testing

    def test_a_terminal_shows_the_progress_of_a_build(self):
        self.stand_in("ninja", "echo '[3/7] Building Timeline.cpp.o'; sleep 3")
        self.make_build_folder(good="true")
        try:
            here, there = pty.openpty()
        except OSError:
            self.skipTest("no terminal can be opened")
        with subprocess.Popen([str(self.tree / "tools" / "dev"), "build"], stdin=subprocess.DEVNULL, stdout=there,
                              stderr=there, env={"PATH": str(self.path), "HOME": str(self.folder)}):
            os.close(there)
            shown = ""
            with open(here, encoding="utf-8", newline="") as terminal, contextlib.suppress(OSError):  # its end
                while part := terminal.readline():
                    shown += part
        self.assertRegex(shown, r"build: 3 of 7 steps, \d s")
        self.assertRegex(shown.splitlines()[-1], r"build: done in \d+ s")

    def test_a_failed_build_shows_the_end_of_its_log(self):
        self.stand_in("ninja", "echo Timeline.cpp:7: no such thing; exit 1")
        result = self.dev("build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("Timeline.cpp:7: no such thing", result.stderr)
        self.assertIn("build.log", result.stderr)

    def test_a_build_folder_of_another_tree_is_refused(self):
        build = self.make_build_folder(good="true")
        (build / "CMakeCache.txt").write_text("CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere\n")
        result = self.dev("build")
        self.assertEqual(result.returncode, 1)
        self.assertIn("configured for another source folder", result.stderr)
        self.assertEqual(self.called("cmake"), [])

    def test_no_cuda_toolkit_is_said(self):
        build = self.make_build_folder(good="true")
        (build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={self.tree}\n"
                                              "PUMPGRAPH_CUDA_INCLUDE:PATH=PUMPGRAPH_CUDA_INCLUDE-NOTFOUND\n")
        self.assertIn("no CUDA toolkit here", self.dev("build").stdout)
        (build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={self.tree}\n"
                                              "PUMPGRAPH_CUDA_INCLUDE:PATH=/usr/local/cuda/include\n")
        self.assertNotIn("no CUDA toolkit here", self.dev("build").stdout)

    def test_closing_line_counts_what_passed(self):
        self.make_build_folder(first="true", second="true")
        result = self.dev("test")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout.splitlines()[-1], "4 passed, 0 failed")

    def test_sanitizers_have_builds_of_their_own(self):
        self.make_build_folder(first="true")
        self.assertEqual(self.dev("test").returncode, 0)
        own, address, thread = self.called("cmake")
        self.assertNotIn("PUMPGRAPH_SANITIZE", own)
        self.assertIn(f"-B {self.tree}/build/address ", address)
        self.assertIn("-DPUMPGRAPH_SANITIZE=address", address)
        self.assertIn("-DPUMPGRAPH_FUZZ_SECONDS=60", address)
        self.assertIn(f"-B {self.tree}/build/thread ", thread)
        self.assertIn("-DPUMPGRAPH_SANITIZE=thread", thread)

    def test_what_a_sanitizer_finds_counts(self):
        build = self.make_build_folder(first="true")
        (build / "thread" / "CTestTestfile.cmake").write_text(
            "add_test(watched false)\nset_tests_properties(watched PROPERTIES LABELS threads)\n")
        result = self.dev("test")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout.splitlines()[-1], "2 passed, 1 failed")

    def test_arguments_for_ctest_mean_the_ordinary_build_alone(self):
        self.make_build_folder(first="true")
        self.assertEqual(self.dev("test", "-R", "first").stdout.splitlines()[-1], "1 passed, 0 failed")
        self.assertEqual(len(self.called("cmake")), 1)

    def test_long_runs_fuzz_for_an_hour_and_draw_other_steps(self):
        self.make_build_folder(first="true")
        result = self.dev("test", "--long")
        self.assertEqual(result.stdout.splitlines()[-1], "3 passed, 0 failed")
        seeds = set()
        for call in self.called("cmake"):
            self.assertIn("-DPUMPGRAPH_FUZZ_SECONDS=3600", call)
            seeds.add(next(word for word in call.split() if word.startswith("-DPUMPGRAPH_FIRST_SEED=")))
        self.assertEqual(len(seeds), 1)
        self.assertNotIn("-DPUMPGRAPH_FIRST_SEED=0", seeds)

        self.dev("test", "--long", PUMPGRAPH_FUZZ_SECONDS="5")
        self.assertIn("-DPUMPGRAPH_FUZZ_SECONDS=5", self.called("cmake")[-1])
        self.assertEqual(self.dev("test", "--long", "-R", "first").returncode, 1)

    def test_failed_and_missing_tests_count_as_failed(self):
        self.make_build_folder(first="true", second="false", third="/nonexistent/test")
        result = self.dev("test")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout.splitlines()[-1], "3 passed, 2 failed")

    def test_skipped_tests_count_as_skipped(self):
        build = self.make_build_folder(first="true", second="sh -c \"exit 77\"")
        with (build / "CTestTestfile.cmake").open("a") as file:
            file.write("set_tests_properties(second PROPERTIES SKIP_RETURN_CODE 77)\n")
        result = self.dev("test")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout.splitlines()[-1], "3 passed, 0 failed, 1 skipped")

    def test_a_run_without_tests_fails(self):
        self.make_build_folder(first="true")
        result = self.dev("test", "-R", "no-such-test")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 0 failed")

    def test_an_earlier_result_is_not_taken_for_this_one(self):
        build = self.make_build_folder(first="true")
        self.assertEqual(self.dev("test").returncode, 0)
        self.assertTrue((build / "ctest.xml").is_file())
        (self.path / "ctest").unlink()
        self.stand_in("ctest", "exit 1")
        result = self.dev("test")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 0 failed")

    def test_arguments_reach_ctest(self):
        self.make_build_folder(first="true", second="false")
        self.assertEqual(self.dev("test", "-R", "first").stdout.splitlines()[-1], "1 passed, 0 failed")

    def test_another_build_folder_is_used(self):
        self.make_build_folder(first="true").rename(self.folder / "other")
        result = self.dev("test", "--build-dir", "other", "-R", "first")
        self.assertEqual(result.stdout.splitlines()[-1], "1 passed, 0 failed")
        self.assertIn(f"-B {self.folder}/other ", self.called("cmake")[0])

    # ---- formatting

    def test_format_check_names_the_files_that_clang_format_refuses(self):
        for name in ("bad.cpp", "good.cpp"):
            (self.tree / name).touch()
        self.stand_in("clang-format-22", "[[ $* != *bad* ]]")
        result = self.dev("format", "--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("not formatted: ./bad.cpp\n", result.stderr)
        self.assertNotIn("good.cpp", result.stderr)
        self.assertIn("1 of 2 files", result.stderr)
        self.assertTrue(all("--dry-run -Werror" in call for call in self.called("clang-format-22")))

        (self.tree / "bad.cpp").unlink()
        self.assertEqual(self.dev("format", "--check").returncode, 0)

    def test_format_leaves_build_folders_alone(self):
        for name in ("graph", "build", "build-debug"):
            (self.tree / name).mkdir()
            (self.tree / name / "x.cpp").touch()
        self.stand_in("clang-format-22")
        self.assertEqual(self.dev("format").returncode, 0)
        self.assertEqual(self.called("clang-format-22"), ["clang-format-22 -i ./graph/x.cpp"])

    # ---- static checks

    LINTERS = ("mypy", "flake8", "shellcheck", "clang-tidy-22")

    def make_lintable(self, *sources):
        """Linters that find their last file and nothing else, and a build folder that compiles these sources."""
        for name in self.LINTERS:
            self.stand_in(name, "" if name == "mypy" else "[[ -e ${!#} ]]")
        for name in ("setup.cfg", "runtime/python/pumpgraph/a.py", "runtime/include/pumpgraph/a.h", *sources):
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            (self.tree / name).touch()
        commands = [{"file": f"{self.tree}/{source}"} for source in sources]
        (self.make_build_folder() / "compile_commands.json").write_text(json.dumps(commands))

    def tidied(self):
        return sorted(call.split()[-1].removeprefix("./") for call in self.called("clang-tidy-22"))

    def test_lint_runs_every_part_and_names_those_that_fail(self):
        self.make_lintable()
        result = self.dev("lint")
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in self.LINTERS:
            self.assertEqual(len(self.called(name)), 1, name)

        self.stand_in("mypy", "echo a.py:1: error: wrong type; exit 1")
        self.stand_in("shellcheck", "exit 1")
        result = self.dev("lint")
        self.assertEqual(result.returncode, 1)
        self.assertIn("a.py:1: error: wrong type\n", result.stderr)
        self.assertEqual(result.stderr.splitlines()[-1], "tools/dev: error: lint: types shell")
        self.assertEqual(len(self.called("clang-tidy-22")), 2, "the others ran")

    def test_lint_without_a_linter_names_it(self):
        for name in self.LINTERS:
            with self.subTest(name):
                shutil.rmtree(self.tree / "build", ignore_errors=True)
                self.make_lintable()
                (self.path / name).unlink()
                result = self.dev("lint")
                self.assertEqual(result.returncode, 1)
                self.assertIn(f"no {name}; 'tools/dev build' installs it", result.stderr)

    def test_lint_all_takes_each_file_that_is_compiled(self):
        self.make_lintable("graph/a.cpp", "passes/b.cpp")
        (self.tree / "graph" / "for_another_build.cpp").touch()
        self.assertEqual(self.dev("lint", "--all").returncode, 0)
        self.assertEqual(self.tidied(), ["graph/a.cpp", "passes/b.cpp"])
        self.assertEqual(self.dev("lint", "graph/a.cpp").returncode, 1)

    def git(self, *arguments):
        identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@pumpgraph.example")
        subprocess.run(["git", "-C", self.tree, *identity, *arguments], check=True, stdout=subprocess.DEVNULL)

    def test_lint_takes_public_headers_and_a_few_changed_files(self):
        self.make_lintable("graph/a.cpp", "passes/b.cpp")
        self.assertEqual(self.dev("lint").returncode, 0)
        self.assertEqual(self.tidied(), ["runtime/include/pumpgraph/a.h"], "without git nothing is changed")

        def changed():
            self.calls.write_text("")
            result = self.dev("lint")
            self.assertEqual(result.returncode, 0, result.stderr)
            return [name for name in self.tidied() if not name.endswith(".h")], result.stdout

        self.git("init", "--quiet")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message=first")
        self.assertEqual(changed()[0], [], "the first commit has none before it")
        (self.tree / "graph/a.cpp").write_text("int a;\n")
        self.git("commit", "--quiet", "--all", "--message=second")
        self.assertEqual(changed()[0], ["graph/a.cpp"], "of the last commit")
        (self.tree / "passes/b.cpp").write_text("int b;\n")
        self.assertEqual(changed()[0], ["passes/b.cpp"], "of the working tree")

        many = [f"graph/{number}.cpp" for number in range(9)]
        shutil.rmtree(self.tree / "build")
        self.make_lintable(*many)
        self.git("add", *many)
        names, said = changed()
        self.assertEqual(names, many[:8])
        self.assertIn("the first 8 of 9 changed C++ files", said)

    # ---- without a GPU

    def test_gpu_commands_fail_without_a_gpu_in_one_sentence(self):
        for command in ("gpu-test", "gpu-bench"):
            with self.subTest(command):
                result = self.dev(command)
                self.assertEqual(result.returncode, 1)
                self.assertEqual(result.stdout, "")
                self.assertEqual(len(result.stderr.splitlines()), 1)
                self.assertIn(f"{command} needs a GPU", result.stderr)

    def test_plan_bench_builds_the_planner_alone_and_hands_arguments_on(self):
        build = self.make_build_folder()
        self.stand_in("python3")
        result = self.dev("plan-bench", "--short", "--rows", "gpt2")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.called("ninja")[-1], f"ninja -C {build} pump-graph-opt")
        self.assertEqual(self.called("python3")[-1], f"python3 {self.tree}/tools/plan-bench --tool "
                         f"{build}/bin/pump-graph-opt --short --rows gpt2")

    def test_wheel_builds_the_binaries_in_it_and_nothing_else(self):
        build = self.make_build_folder()
        result = self.dev("wheel")
        built = f"ninja -C {build} pumpgraph pumpgraph-compiler pump-graph-opt launcher"
        self.assertEqual(self.called("ninja"), [built], result.stderr)

        (build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={self.tree}\n"
                                              "PUMPGRAPH_CUDA_INCLUDE:PATH=PUMPGRAPH_CUDA_INCLUDE-NOTFOUND\n")
        result = self.dev("wheel")
        self.assertEqual(result.returncode, 1)
        self.assertIn("a wheel needs the runtime, and there is no CUDA toolkit", result.stderr)
        self.assertEqual(len(self.called("ninja")), 1)

    # ---- the demo says which of its three forms it takes

    def add_built(self, build, path, body=""):
        program = build / path
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/bash\necho "{program.name} $*" >>"{self.calls}"\n{body}\n')
        program.chmod(0o755)

    def add_planner(self, build):
        self.add_built(build, "bin/pump-graph-opt",
                       'for word; do [[ $word != --report=html:* ]] || echo page >"${word#--report=html:}"; done')

    def add_recorded_step(self):
        step = self.tree / "test" / "data" / "gpt2-355m.mlir.gz"
        step.parent.mkdir(parents=True)
        step.touch()
        return step

    def pretend_gpu(self, torch, driver_api="13.0", virtual_memory=1):
        """A driver with one GPU, and a python3 whose PyTorch sees it or not."""
        facts = self.folder / "facts"
        facts.write_text(f"""driver_api {driver_api}
devices 1
reason
device0_name NVIDIA H200
device0_memory_bytes 150000000000
device0_compute_major 9
device0_compute_minor 0
device0_virtual_memory {virtual_memory}
device0_host_numa_node 0
device0_host_numa_virtual_memory 1
""")
        self.stand_in("python3", f"""case $1 in
  */driver_facts.py) cat {facts} ;;
  -c) exit {0 if torch else 1} ;;
esac""")

    def test_demo_without_a_gpu_plans_the_recorded_step(self):
        build = self.make_build_folder()
        self.add_planner(build)
        result = self.dev("demo")
        self.assertEqual(result.returncode, 1)
        self.assertIn("there is no recorded step", result.stderr)

        step = self.add_recorded_step()
        result = self.dev("demo")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("because there is no GPU", result.stdout)
        self.assertIn(str(build / "demo" / "gpt2.html"), result.stdout.splitlines()[-2])
        self.assertRegex(result.stdout.splitlines()[-1], r"^demo: done in \d+ s$")
        self.assertIn(f"pump-graph-opt {step} --budget=50% --sweep", self.called("pump-graph-opt")[-1])
        self.assertEqual(self.called("ninja")[-1], f"ninja -C {build} pump-graph-opt", "nothing else is needed")

    def test_demo_fails_when_no_report_was_written(self):
        self.add_built(self.make_build_folder(), "bin/pump-graph-opt")
        self.add_recorded_step()
        result = self.dev("demo")
        self.assertEqual(result.returncode, 1)
        self.assertIn("wrote no report", result.stderr)

    def test_demo_with_gpu_and_pytorch_trains_the_pytorch_example(self):
        self.pretend_gpu(torch=True)
        self.add_built(self.make_build_folder(), "bin/pumpgraph-example-transformer")
        result = self.dev("demo")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("(NVIDIA H200) and PyTorch sees it", result.stdout)
        self.assertIn("docs/examples/pytorch/gpt2.py", self.called("python3")[-1])
        self.assertEqual(self.called("pumpgraph-example-transformer"), [])

    def test_demo_with_gpu_and_toolkit_trains_the_cpp_example(self):
        self.pretend_gpu(torch=False)
        self.add_built(self.make_build_folder(), "bin/pumpgraph-example-transformer")
        result = self.dev("demo")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("training the C++ example", result.stdout)
        self.assertEqual(len(self.called("pumpgraph-example-transformer")), 1)

    def test_demo_with_gpu_alone_plans_the_recorded_step(self):
        self.pretend_gpu(torch=False)
        self.add_planner(self.make_build_folder())
        self.add_recorded_step()
        result = self.dev("demo")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("neither PyTorch that sees it nor nvcc", result.stdout)

    # ---- a build that came from another machine

    def test_gpu_test_uses_a_carried_build_as_it_is(self):
        self.pretend_gpu(torch=False)
        build = self.make_build_folder()
        (build / "bin").mkdir()
        (build / "lib").mkdir()
        result = self.dev("gpu-test", "--filter", "replay")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"test/gpu/run_gpu_tests.py --build-dir {build} --filter replay", self.called("python3")[-1])
        self.assertEqual(self.called("cmake") + self.called("dpkg-query"), [])

        (build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={self.tree}\n")
        self.assertEqual(self.dev("gpu-test").returncode, 0)
        self.assertEqual(len(self.called("ninja")), 1)

    def test_gpu_bench_prints_the_tables_of_an_earlier_run_without_a_gpu(self):
        bench = self.tree / "tools" / "pump-graph-bench"
        bench.mkdir()
        (bench / "__main__.py").write_text("import sys; print(*sys.argv[1:])\n")
        result = self.dev("gpu-bench", "--from", "results.jsonl")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, f"--binaries {self.tree}/build/bin --from results.jsonl\n")

    # ---- the doctor

    def test_doctor_speaks_before_anything_is_built_or_installed(self):
        self.only_these_are_missing("libmlir-22-dev")
        result = self.dev("doctor")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("will not work: packages are missing", result.stdout)
        self.assertIn("missing: libmlir-22-dev", result.stdout)
        self.assertRegex(result.stdout, r"locked memory \(ulimit -l\): \S+")

    def verdict(self, what):
        result = self.dev("doctor")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = [line for line in result.stdout.splitlines() if line.startswith(what)]
        self.assertEqual(len(lines), 1, result.stdout)
        return lines[0].removeprefix(what).strip()

    def test_doctor_judges_driver_and_gpu(self):
        (self.tree / "runtime" / "driver").mkdir(parents=True)  # which says what is asked of a driver
        shutil.copy(REPOSITORY / "runtime" / "driver" / "Driver.h", self.tree / "runtime" / "driver")
        self.pretend_gpu(torch=False)
        self.assertEqual(self.verdict("run steps"), "works")
        self.pretend_gpu(torch=False, driver_api="12.2")
        self.assertEqual(self.verdict("run steps"), "will not work: the driver supports CUDA 12.2, needed is 12.4")
        self.pretend_gpu(torch=False, virtual_memory=0)
        self.assertEqual(self.verdict("run steps"), "will not work: GPU 0 has no virtual memory management")


if __name__ == "__main__":
    unittest.main()

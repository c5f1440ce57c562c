# SPDX-License-Identifier: Apache-2.0
"""Runs pump-graph-opt on steps, traces and files with hostile names: whatever it prints, a terminal has nothing to obey
in it, and no name makes a line of its own. The tool is asked which reports there are, and PASSES.td which passes
report, so that a new one is looked at as well.

  hostile_names.py PASSES.td FOLDER
"""
import json
import pathlib
import pickle
import re
import subprocess
import sys
import unicodedata

HOSTILE = "\x1b]0;a\x07\nINJECTED: error:\r\x7f\u009b31m\u202e\u2066\u2028</script><b>\"'&"
looked = 0


def look(what, output):
    """No line that a name begins, and no character that is more than shown."""
    global looked
    looked += 1
    try:
        # A binary report, whose texts are what readers show.
        text = output.decode() if not output.startswith(b"\x80\x04") else "\n".join(texts_in(pickle.loads(output)))
    except UnicodeDecodeError as problem:
        sys.exit(f"{what} is no text: {problem}")
    for line in text.split("\n"):
        bad = sorted({hex(ord(c)) for c in line if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")})
        if bad:
            sys.exit(f"{what} prints {', '.join(bad)}: {line!r}")
        if line.startswith("INJECTED"):
            sys.exit(f"{what} lets a name begin a line: {line!r}")


def texts_in(value):
    if isinstance(value, str):
        return [value]
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in texts_in(part)]


def run(*arguments, fails=False, shows=True):
    done = subprocess.run(["pump-graph-opt", *map(str, arguments)], capture_output=True)
    what = " ".join(ascii(argument) for argument in map(str, arguments))
    if (done.returncode != 0) != fails:
        sys.exit(f"{what}: exit status {done.returncode}: {done.stderr!r}")
    look(what, done.stdout)
    look(what, done.stderr)
    if shows and b"\\x1b" not in done.stdout + done.stderr and b"\\\\x1b" not in done.stdout:
        sys.exit(f"{what} is to show the name: {done.stdout!r} {done.stderr!r}")
    return done


def in_ir(name, raw):
    """The name as a string of IR; `raw`: as many of its bytes as they are as the lexer reads."""
    keep = raw and name.replace("\n", "\\0A").replace('"', "\\22").encode()
    return keep or "".join(f"\\{byte:02X}" for byte in name.encode()).encode()


def step(kernel="pump.kernel", raw=False, last=""):
    name = in_ir(HOSTILE, raw)
    text = f"""pump.graph @"NAME" {{
  %a = pump.buffer "NAME" private size(4194304)
  %b = pump.buffer "NAME" private size(4194304)
  %k0 = {kernel} "NAME" node(0) [write %a[0, 4194304] declared must(write)] cost(100.0)
  %k1 = {kernel} "NAME" label("NAME") node(1) after(%k0) [write %b[0, 4194304] declared must(write)] cost(100.0)
  %k2 = {kernel} "NAME" node(2) after(%k1) [read %a[0, 4194304] declared] cost(100.0)
{last}}}
"""
    return text.encode().replace(b"NAME", name)


def main(passes, folder):
    folder.mkdir(parents=True, exist_ok=True)
    good, raw = folder / "good.mlir", folder / "raw.mlir"
    good.write_bytes(step())
    raw.write_bytes(step(raw=True))

    unknown = run(good, "--report=none", fails=True, shows=False).stderr.decode()
    kinds = re.search(r"known: (.*)", unknown)[1].split(", ")
    reports = re.findall(r': ReportPass<"([\w-]+)">', passes.read_text())
    if len(kinds) < 6 or len(reports) < 2:
        sys.exit(f"found {kinds} and {reports}")
    for file in (good, raw):
        for kind in kinds:
            run(file, "--budget=4MiB", "--sweep=3", "--compare", f"--report={kind}")
        for options in ("", "=json"):
            run(file, f"--simulate-step{options}", "-o", "/dev/null")
        for name in reports:
            run(file, f"--{name}", "-o", "/dev/null")
        run(file, "--plan-residency=budget=4MiB", "--lower-virtual", "--print-summary", "-o", "/dev/null")

    # Messages: of the planner, the checker, the verifier, the parser, with the lines of the file that they show.
    run(raw, "--budget=1MiB", "--host-memory=1MiB", fails=True, shows=False)
    run(raw, "--plan-residency=budget=2MiB host-memory=1MiB", "-o", "/dev/null", fails=True, shows=False)
    wrong = folder / "wrong.mlir"
    wrong.write_bytes(step(raw=True).replace(b"size(4194304)", b"size(4194304) frames(0 to 1)").replace(
        b'" {\n', b'" stage(planned) budget(4194304) {\n', 1))
    run(wrong, "--check-residency", "-o", "/dev/null", fails=True)
    wrong.write_bytes(step(raw=True, last='  %x = pump.buffer "NAME" private size(0)\n'))
    run(wrong, fails=True, shows=False)
    wrong.write_bytes(step(raw=True, last='  %x = pump.kernel "NAME" nonsense\n'))
    run(wrong, fails=True, shows=False)
    wrong.write_bytes(step(raw=True, last='  %x = pump.kernel "k" {"NAME" = 1, "NAME" = 2}\n'))
    run(wrong, fails=True, shows=False)

    # Traces and files.
    trace = folder / "trace.json"
    kernel = {"id": 0, "name": HOSTILE, "time_us": 10.0, "reads": [], "writes": [0]}
    tensor = {"id": 0, "name": HOSTILE, "bytes": 4096, "kind": "intermediate"}
    for change in ({}, {"reads": [7]}, {"time_us": HOSTILE}, {HOSTILE: HOSTILE}):
        trace.write_text(json.dumps({"name": HOSTILE, "tensors": [tensor], "kernels": [{**kernel, **change}]}))
        done = subprocess.run(["pump-graph-opt", f"--import-trace={trace}"], capture_output=True)
        look(f"a trace with {change!r}", done.stdout + done.stderr)
    trace.write_bytes(b'{"name": "\x1b[31m\xff')
    run(f"--import-trace={trace}", fails=True, shows=False)
    missing = "no\x1b[31m\nINJECTED"
    run(missing, fails=True)
    run(missing, "--budget=4MiB", fails=True)
    run(f"--import-trace={missing}", fails=True)
    run(good, f"--report=text:{folder}/{missing}/x", fails=True)
    run(good, f"--report={missing}", fails=True)
    run(good, f"--budget={missing}", fails=True)
    run(good, f"--compare={missing}", fails=True)
    odd = folder / missing.replace("/", "")
    odd.write_bytes(b"nonsense")
    run(odd, fails=True)
    run(odd, "--budget=4MiB", fails=True)
    print(f"{looked} outputs of {len(kinds)} reports and {len(reports)} passes")


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))

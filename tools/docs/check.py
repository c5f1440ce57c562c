#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the documents to limits: their length, vague words, long sentences, dead links, words that the glossary rules
out.

usage: check.py [--root DIR] [--update] [DOCUMENTS]

Prints one row for each document. A document over a limit needs a line in exceptions.txt with its figure, and the figure
may only shrink: `--update` lowers the lines to the present figures and drops those that are met, and never adds one.
With DOCUMENTS prints these alone, and the place of every fault in them."""
import argparse
import os
import re
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

VAGUE = re.compile(r"\b(?:what|who|whoever|whatever)\b", re.IGNORECASE)
MOST_VAGUE = 4  # in 1,000 words; one in any document
MOST_WORDS_OF_A_SENTENCE = 35
MOST_WORDS = 33_600  # in all documents; it may only shrink
GLOSSARY = Path("docs/glossary.md")
EXCEPTIONS = Path("tools/docs/exceptions.txt")
LIMITS = {"vague": MOST_VAGUE, "long": 0, "links": 0, "terms": 0}
HEADINGS = {"vague": "vague words per 1,000", "long": "% long sentences", "links": "dead links", "terms": "terms"}
FOLDERS = ("docs", "tools", "test")  # with documents, beside the root
SOURCES = ("cmake", "graph", "passes", "runtime", "test", "tools")
SOURCE_SUFFIXES = {".h", ".hpp", ".c", ".cpp", ".cu", ".py", ".sh", ".td", ".cmake", ".js", ".mlir"}
WITHOUT_MENTIONS = Path("test/dev")  # its tests name documents of their own

FENCE = re.compile(r"^\s*(```+|~~~+)")
ITEM = re.compile(r"^\s*(?:[*+-]|\d+[.)])\s+")
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
TARGET = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s+(\S+)|(?:href|src)=\"([^\"]+)\"",
                    re.MULTILINE)
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])")
RULED_OUT = re.compile(r"\*\*(.+?)\*\*: .* \*Not:\* (.+)\.")  # an entry of the glossary
MENTION = re.compile(r"(?<![\w/.-])(docs/[\w./-]+?\.md)\b(?:#([\w-]+))?")


class Block(NamedTuple):
    """A paragraph, a list item, a heading, or a cell of a table."""

    line: int
    raw: str
    kind: str

    @property
    def text(self) -> str:
        """As it is read: code is one word, and none in a table."""
        return readable(self.raw, "" if self.kind == "cell" else "Code")


class Fault(NamedTuple):
    line: int
    message: str


class Figures(NamedTuple):
    words: int
    faults: Dict[str, List[Fault]]
    values: Dict[str, float]


def readable(raw: str, code: str) -> str:
    text = CODE.sub(code, raw)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"<[^<>]+>", "", text)
    return " ".join(re.sub(r"[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)", "", text).split())


def words(text: str) -> List[str]:
    return [word for word in text.split() if re.search(r"\w", word)]


def cells(row: str) -> List[str]:
    """Bars within code, and escaped ones, are none."""
    hidden = CODE.sub(lambda code: code[0].replace("|", "\0"), row.strip()).replace("\\|", "\0")
    return [cell.strip().replace("\0", "|") for cell in hidden.strip("|").split("|")]


def blocks_of(text: str) -> List[Block]:
    blocks: List[Block] = []
    lines: List[str] = []
    start = 0
    fence: Optional[str] = None

    def end() -> None:
        if lines:
            blocks.append(Block(start, "\n".join(lines), "text"))
            lines.clear()

    for number, line in enumerate(text.split("\n"), 1):
        marker = FENCE.match(line)
        if fence or marker:
            end()
            if marker and not fence:
                fence = marker[1]
            elif marker and marker[1].startswith(fence or "") and not line.strip().strip(marker[1][0]):
                fence = None
            continue
        line = re.sub(r"^\s*>\s?", "", line)
        stripped = line.strip()
        if not stripped:
            end()
        elif stripped.startswith("|"):
            end()
            if not re.fullmatch(r"[|\s:-]+", stripped):
                blocks += [Block(number, cell, "cell") for cell in cells(stripped) if cell]
        elif re.match(r"#{1,6}\s", stripped):
            end()
            blocks.append(Block(number, stripped.lstrip("#").strip(), "heading"))
        else:
            if ITEM.match(line):
                end()
            if not lines:
                start = number
            lines.append(ITEM.sub("", line))
    end()
    return blocks


def anchors_of(blocks: List[Block]) -> List[str]:
    """As GitHub makes them."""
    anchors: List[str] = []
    for block in blocks:
        anchors += re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", block.raw)
        if block.kind == "heading":
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", block.raw).replace("`", "").replace("*", "").lower()
            slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
            taken = sum(re.fullmatch(re.escape(slug) + r"(-\d+)?", other) is not None for other in anchors)
            anchors.append(f"{slug}-{taken}" if slug in anchors else slug)
    return anchors


def shown(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."


class Tree:
    """The documents below a folder, read once each."""

    def __init__(self, root: Path):
        self.root = root
        self._blocks: Dict[Path, List[Block]] = {}
        self._anchors: Dict[Path, List[str]] = {}
        self.ruled_out = self._ruled_out()

    def files(self, folders: Tuple[str, ...], suffixes: set) -> Iterator[Path]:
        for folder in folders:
            for where, below, names in os.walk(self.root / folder):
                below[:] = sorted(name for name in below if not name.startswith((".", "build")))
                for name in sorted(names):
                    if Path(name).suffix in suffixes or name == "CMakeLists.txt" and ".cmake" in suffixes:
                        yield (Path(where) / name).relative_to(self.root)

    def documents(self) -> List[Path]:
        here = [path.relative_to(self.root) for path in sorted(self.root.glob("*.md"))]
        return here + list(self.files(FOLDERS, {".md"}))

    def text(self, path: Path) -> str:
        return (self.root / path).read_text(encoding="utf-8")

    def blocks(self, path: Path) -> List[Block]:
        if path not in self._blocks:
            self._blocks[path] = blocks_of(self.text(path))
        return self._blocks[path]

    def anchors(self, path: Path) -> List[str]:
        if path not in self._anchors:
            self._anchors[path] = anchors_of(self.blocks(path))
        return self._anchors[path]

    def _ruled_out(self) -> List[Tuple[str, str, "re.Pattern[str]"]]:
        """Of each term of the glossary the words that it replaces."""
        found = []
        for block in self.blocks(GLOSSARY) if (self.root / GLOSSARY).is_file() else []:
            entry = RULED_OUT.fullmatch(" ".join(block.raw.split()))
            for phrase in entry[2].split(", ") if entry else []:
                pattern = r"\s+".join(re.escape(word) for word in phrase.split())
                found.append((entry[1], phrase, re.compile(rf"\b{pattern}\b", re.IGNORECASE)))
        return found

    def why_dead(self, target: str, document: Path) -> Optional[str]:
        """`document` links to `target`. Addresses with a scheme are not looked at."""
        if re.match(r"[a-z][a-z0-9+.-]*:|//", target):
            return None
        name, _, anchor = target.partition("#")
        path = document
        if name:
            base = "" if name.startswith("/") else str(document.parent)
            path = Path(os.path.normpath(os.path.join(base, name.lstrip("/"))))
            if not (self.root / path).exists():
                return f"there is no {path}"
        if anchor and path.suffix == ".md" and anchor not in self.anchors(path):
            return f"{path} has no #{anchor}"
        return None

    def dead_links(self, path: Path) -> Iterator[Fault]:
        for block in self.blocks(path):
            hidden = CODE.sub(lambda code: re.sub(r"[^\n]", "x", code[0]), block.raw)
            for link in TARGET.finditer(hidden):
                why = self.why_dead(next(filter(None, link.groups())), path)
                if why:
                    yield Fault(block.line + block.raw.count("\n", 0, link.start()), why)

    def dead_mentions(self) -> Iterator[Tuple[Path, Fault]]:
        """Documents below docs/ that source files name."""
        for path in self.files(SOURCES, SOURCE_SUFFIXES):
            if WITHOUT_MENTIONS in path.parents:
                continue
            for number, line in enumerate(self.text(path).split("\n"), 1):
                for mention in MENTION.finditer(line):
                    why = self.why_dead("/" + mention[0], path)
                    if why:
                        yield path, Fault(number, why)

    def measure(self, path: Path) -> Figures:
        faults: Dict[str, List[Fault]] = {"vague": [], "long": [], "links": list(self.dead_links(path)), "terms": []}
        running = sentences = 0
        for block in self.blocks(path):
            text = block.text
            running += len(words(text))
            faults["vague"] += [Fault(block.line, f'"{word[0]}" in: {shown(text[max(0, word.start() - 40):])}')
                                for word in VAGUE.finditer(text)]
            for sentence in SENTENCE_END.split(text):
                sentences += bool(words(sentence))
                if len(words(sentence)) > MOST_WORDS_OF_A_SENTENCE:
                    faults["long"].append(Fault(block.line, f"{len(words(sentence))} words: {shown(sentence)}"))
            for term, phrase, pattern in self.ruled_out if path != GLOSSARY else []:
                faults["terms"] += [Fault(block.line, f'"{phrase}" is "{term}" in the glossary')
                                    for _ in pattern.finditer(text)]
        vague = len(faults["vague"])
        values = {"vague": round(vague * 1000 / running, 1) if vague > 1 else 0.0,
                  "long": round(len(faults["long"]) * 100 / max(sentences, 1), 1),
                  "links": float(len(faults["links"])), "terms": float(len(faults["terms"]))}
        return Figures(len(self.text(path).split()), faults, values)


def read_exceptions(path: Path) -> Dict[Tuple[str, str], float]:
    """Lines of a document, a limit and a figure."""
    exceptions = {}
    for line in path.read_text(encoding="utf-8").split("\n") if path.is_file() else []:
        fields = line.split("#")[0].split()
        if fields:
            document, limit, figure = fields
            if limit not in LIMITS:
                raise ValueError(f'{path}: there is no limit "{limit}"')
            exceptions[document, limit] = float(figure)
    return exceptions


def write_exceptions(path: Path, exceptions: Dict[Tuple[str, str], float]) -> None:
    comments = [line for line in path.read_text(encoding="utf-8").split("\n") if line.startswith("#")]
    lines = [f"{document} {limit} {figure:g}" for (document, limit), figure in sorted(exceptions.items())]
    path.write_text("\n".join(comments + lines) + "\n", encoding="utf-8")


def lowered(exceptions: Dict[Tuple[str, str], float], measured: Dict[str, Figures]) -> Dict[Tuple[str, str], float]:
    present = {(document, limit): min(figure, measured[document].values[limit])
               for (document, limit), figure in exceptions.items() if document in measured}
    return {key: figure for key, figure in present.items() if figure > LIMITS[key[1]]}


def print_table(measured: Dict[str, Figures]) -> None:
    rows = [["document", "words", *HEADINGS.values()]]
    rows += [[document, f"{figures.words:,}", *(f"{figures.values[limit]:g}" for limit in LIMITS)]
             for document, figures in measured.items()]
    rows.append(["in all", f"{sum(figures.words for figures in measured.values()):,}", "", "",
                 *(f"{sum(figures.values[limit] for figures in measured.values()):g}" for limit in ("links", "terms"))])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for index, row in enumerate(rows):
        padded = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
        print("| " + " | ".join(padded) + " |")
        if index == 0:
            print("|" + "|".join("-" * (width + 1) + ("-" if column == 0 else ":")
                                 for column, width in enumerate(widths)) + "|")


def check(root: Path, update: bool, only: List[str]) -> int:
    tree = Tree(root)
    measured = {path.as_posix(): tree.measure(path) for path in (map(Path, only) if only else tree.documents())}
    print_table(measured)
    if only:
        for document, figures in measured.items():
            for limit in LIMITS:
                for fault in figures.faults[limit]:
                    print(f"{document}:{fault.line}: {limit}: {fault.message}")
        return 0

    exceptions = read_exceptions(root / EXCEPTIONS)
    if update:
        exceptions = lowered(exceptions, measured)
        write_exceptions(root / EXCEPTIONS, exceptions)
    failed = False
    in_all = sum(figures.words for figures in measured.values())
    if in_all > MOST_WORDS:
        failed = True
        print(f"over the limit of {MOST_WORDS:,}: {in_all:,} words in all documents")
    for document, figures in measured.items():
        for limit, most in LIMITS.items():
            figure, allowed = figures.values[limit], exceptions.get((document, limit), most)
            if figure > allowed:
                failed = True
                print(f"over the limit of {allowed:g}: {document} {limit} {figure:g}")
                for fault in figures.faults[limit]:
                    print(f"  {document}:{fault.line}: {fault.message}")
    for document, limit in sorted(exceptions.keys() - lowered(exceptions, measured).keys()):
        failed = True
        print(f"needs no exception any more, `tools/dev docs --update` drops it: {document} {limit}")
    for path, fault in tree.dead_mentions():
        failed = True
        print(f"{path}:{fault.line}: {fault.message}")
    return 1 if failed else 0


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/dev docs", description="Holds the documents to limits.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help=argparse.SUPPRESS)
    parser.add_argument("--update", action="store_true", help="lower the exceptions to the present figures")
    parser.add_argument("documents", nargs="*", help="relative to the root: print every fault of these alone")
    options = parser.parse_args(arguments)
    if options.update and options.documents:
        parser.error("--update is for all documents")
    return check(options.root, options.update, options.documents)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

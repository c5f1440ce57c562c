#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a static site with search of the documents, the C and C++ API and the Python API.

usage: make_site.py [--root DIR] [--output DIR]        (tools/dev site)

MkDocs makes the pages, Doxygen the reference of the headers, pydoc the one of the package. A warning of these, or
a dead link in the finished site, is a failure. The site lands in OUTPUT/site."""
import argparse
import contextlib
import html.parser
import importlib
import json
import os
import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, List, Set, Tuple
from urllib.parse import unquote

import check

FOLDERS = {"Guide": "docs/guide", "Reference": "docs/reference", "Design": "docs/design", "Results": "docs/results",
           "Decisions": "docs/decisions"}
C_API, PYTHON_API = Path("api/c/index.html"), Path("api/python.md")
ITEM = re.compile(r"^( *)([*+-]|\d+[.)])( +)")


class Failure(Exception):
    """Printed without a traceback."""


# ---- pages -----------------------------------------------------------------------------------------------------------


def slug(text: str, _: str) -> str:
    """Of a heading, as check.py and GitHub make it. MkDocs calls this."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def indented(text: str) -> str:
    """As Python-Markdown reads it: content of a list item is four columns further in than its bullet, an empty line
    precedes an item after a paragraph, and nothing follows the language of a code block."""
    out: List[str] = []
    columns: List[int] = []  # of the items that are open: where their content begins
    fence = paragraph = False
    for line in text.split("\n"):
        item = None if fence else ITEM.match(line)
        indent = len(line) - len(line.lstrip(" "))
        if line.strip() and not fence:
            while columns and indent < columns[-1]:
                columns.pop()
        if item and paragraph and out[-1]:
            out.append("")
        if check.FENCE.match(line):
            line = re.match(r"\s*[`~]+\w*", line)[0]  # type: ignore[index]
        inner = line[columns[-1]:] if columns and indent >= columns[-1] else line.lstrip(" ") if columns else line
        out.append(("    " * len(columns) + inner) if line.strip() else line)
        if check.FENCE.match(line):
            fence = not fence
        if item:
            columns.append(item.end())
        paragraph = not item and (paragraph or not columns or not line.strip())
    return "\n".join(out)


def targets(text: str) -> Iterator[str]:
    hidden = check.CODE.sub("", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    for link in check.TARGET.finditer(hidden):
        yield next(filter(None, link.groups())).partition("#")[0]


def stage(tree: check.Tree, folder: Path) -> None:
    """The documents at their places, and the files and folders that they link to."""
    documents = tree.documents()
    for document in documents:
        text = tree.text(document)
        for target in targets(text):
            if not target or re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            linked = Path(os.path.normpath(document.parent / target))
            if linked in documents or not (tree.root / linked).exists():
                continue  # a page by itself, or dead: MkDocs says so
            (folder / linked).parent.mkdir(parents=True, exist_ok=True)
            if (tree.root / linked).is_file():
                shutil.copyfile(tree.root / linked, folder / linked)
            else:
                write(folder / linked / "index.md", contents_of(tree.root, linked))
        write(folder / document, indented(re.sub(r"(\]\((?!\w+:)[^)\s]*/)\)", r"\1index.md)", text)))


def contents_of(root: Path, folder: Path) -> str:
    names = sorted(path.name for path in (root / folder).iterdir() if not path.name.startswith((".", "__")))
    pages = [f"[{name}]({name})" if name.endswith(".md") else f"`{name}`" for name in names]
    return "\n".join([f"# {folder.as_posix()}", "", *(f"* {page}" for page in pages)]) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def navigation(documents: List[Path]) -> List[object]:
    def below(folder: str) -> List[str]:
        return [path.as_posix() for path in documents if path.parent == Path(folder)]

    known = {path for folder in FOLDERS.values() for path in below(folder)}
    others = [path.as_posix() for path in documents if path.as_posix() not in known | {"README.md"}]
    api = {"API": [{"C and C++": C_API.as_posix()}, {"Python": PYTHON_API.as_posix()}]}
    folders = [{title: below(folder)} for title, folder in FOLDERS.items()]
    return [{"PumpGraph": "README.md"}, *folders[:2], api, *folders[2:], {"More": others}]


def configuration(documents: List[Path], pages: Path, site: Path) -> str:
    """JSON, but for the one thing that only YAML can say: a function."""
    settings = {
        "site_name": "PumpGraph", "docs_dir": str(pages), "site_dir": str(site),
        "theme": {"name": "mkdocs", "highlightjs": False}, "use_directory_urls": False, "strict": True,
        "plugins": ["search"], "nav": navigation(documents),
        "markdown_extensions": ["tables", "fenced_code", "sane_lists", {"toc": {"slugify": "SLUG", "toc_depth": 3}}],
    }
    return json.dumps(settings, indent=1).replace('"SLUG"', '!!python/name:make_site.slug ""')


# ---- references ------------------------------------------------------------------------------------------------------


def headers_reference(root: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    settings = (root / "tools/docs/Doxyfile").read_text(encoding="utf-8") + f"OUTPUT_DIRECTORY = {folder}\n"
    run(["doxygen", "-"], root, settings)


def package_reference(root: Path) -> str:
    """help() of every public name. Where there is no PyTorch, the tests' stand-in serves: it is only imported."""
    sys.path.insert(0, str(root / "runtime/python"))
    if importlib.util.find_spec("torch") is None:
        sys.path.append(str(root / "test/python/fake_torch"))
    package = importlib.import_module("pumpgraph")
    parts = ["# Python API", "", "The text of `help(pumpgraph)`, and of each of its names.", "", *code(package.__doc__)]
    for name in package.__all__:
        parts += [f"## {name}", "", *code(pydoc.plain(pydoc.render_doc(getattr(package, name), "%s")))]
    return "\n".join(parts) + "\n"


def code(text: str) -> List[str]:
    return ["```text", text.strip("\n"), "```", ""]


# ---- the finished site -----------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: List[str] = []
        self.anchors: Set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: List[Tuple[str, "str | None"]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.links.append(value)
            if name == "id" or name == "name" and tag == "a":
                self.anchors.add(value or "")


def dead_links(site: Path) -> Iterator[str]:
    pages: Dict[Path, Page] = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for link in page.links:
            name, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z][a-z0-9+.-]*:|//", name) or path.name == "404.html":
                continue
            target = Path(os.path.normpath(path.parent / name.partition("?")[0])) if name else path
            if target.is_dir():
                target /= "index.html"
            missing = not target.exists() or anchor and target in pages and anchor not in pages[target].anchors
            if missing:
                yield f"{path.relative_to(site)}: there is no {link}"


def raw_lists(site: Path) -> Iterator[str]:
    """Where Markdown came through as text."""
    for path in sorted((site / "docs").rglob("*.html")):
        text = re.sub(r"<pre>.*?</pre>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for line in re.findall(r"^(?:<p>)?(?:[*|] |\d+\. <).*", text, flags=re.MULTILINE):
            yield f"{path.relative_to(site)}: not laid out: {line}"


# ---- command line ----------------------------------------------------------------------------------------------------


def run(command: List[str], folder: Path, text: str = "") -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent)}
    try:
        result = subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True, env=environment,
                                check=False)
    except FileNotFoundError:
        raise Failure(f"there is no {command[0]}; Debian has it in the package {command[0]}") from None
    if result.returncode:
        raise Failure(f"{command[0]} failed:\n{result.stdout}{result.stderr}")


def make(root: Path, output: Path) -> Path:
    pages, site = output / "site-pages", output / "site"
    for folder in (pages, site):
        shutil.rmtree(folder, ignore_errors=True)
    tree = check.Tree(root)
    stage(tree, pages)
    headers_reference(root, pages / C_API.parent)
    write(pages / PYTHON_API, package_reference(root))
    write(output / "site.yml", configuration(tree.documents(), pages, site))
    run(["mkdocs", "build", "--quiet", "--config-file", str(output / "site.yml")], root)
    faults = [*dead_links(site), *raw_lists(site)]
    if faults:
        raise Failure("\n".join(faults))
    return site


def main(arguments: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="tools/dev site", description="Makes a static site of the documents.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=None, help="folder of the site (build)")
    options = parser.parse_args(arguments)
    try:
        site = make(options.root, (options.output or options.root / "build").resolve())
    except Failure as failure:
        print(f"tools/dev site: error: {failure}", file=sys.stderr)
        return 1
    print(f"{site}/index.html; search needs a server: python3 -m http.server --directory {site}")
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(sys.argv[1:]))

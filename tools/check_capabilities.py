#!/usr/bin/env python3
"""Checks that docs/capabilities.md and the links between documents hold.

    check_capabilities.py [ROOT]   check the tree at ROOT (default: the repository of this file)

The table must number its rows 1 to 120, each `shown` or `not yet`. A row that is shown says where it works (`running`,
`offline`, `library`) and names, in backticks, at least one test, command or file. Every test named there (`Suite.Name`) must exist as a TEST,
TEST_F or TEST_P, every path as a file. In all Markdown files, relative links and paths in backticks that begin with a
folder of the tree must exist. Where a link goes to a `#place` of a document, that document must have the heading or the
anchor. Prints one line per fault; exits 1 if there was any.
"""

import re
import sys
from collections import Counter
from pathlib import Path

ROWS = 120
TEST_FOLDERS = ("src", "cli", "tests")
DOCUMENT_FOLDERS = ("docs", "models", "bench")
TREE_FOLDERS = ("include/", "src/", "cli/", "examples/", "fuzz/", "tests/", "tools/", "docs/", "cmake/", "python/")

TEST_MACRO = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
TEST_NAME = re.compile(r"[A-Z]\w*\.[A-Z]\w*")
ROW = re.compile(r"^\|\s*(\d+)\s*\|([^|]*)\|\s*([^|]*?)\s*\|\s*([^|]*?)\s*\|(.*)\|\s*$")
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([^"]+)">')


def known_tests(root: Path) -> set[str]:
    """Every Suite.Name of the sources."""
    tests = set()
    for folder in TEST_FOLDERS:
        for path in sorted((root / folder).rglob("*_test.cc")):
            tests.update(".".join(found) for found in TEST_MACRO.findall(path.read_text()))
    return tests


def check_table(root: Path) -> list[str]:
    faults = []
    document = root / "docs/capabilities.md"
    tests = known_tests(root)
    expected = 1
    for line in document.read_text().splitlines():
        row = ROW.match(line)
        if not row:
            continue
        number, status, where, shown_by = int(row[1]), row[3], row[4], CODE.findall(row[5])
        if number != expected:
            faults.append(f"row {number} stands where {expected} should")
        expected = number + 1
        if status not in ("shown", "not yet"):
            faults.append(f'row {number}: status "{status}" is neither "shown" nor "not yet"')
        if where not in ("running", "offline", "library") and status == "shown":
            faults.append(f'row {number}: where "{where}" is none of running, offline, library')
        if status == "shown" and not shown_by:
            faults.append(f"row {number}: shown, but by nothing")
        for name in shown_by:
            if TEST_NAME.fullmatch(name) and name not in tests:
                faults.append(f"row {number}: no test {name}")
    if expected != ROWS + 1:
        faults.append(f"the last row is {expected - 1}, not {ROWS}")
    return [f"docs/capabilities.md: {fault}" for fault in faults]


def places(document: Path) -> set[str]:
    """What links may name behind #: anchors, and GitHub's names of the headings."""
    text = FENCED.sub("", document.read_text())
    names = set(ANCHOR.findall(text))
    times: Counter[str] = Counter()
    for heading in HEADING.findall(text):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        names.add(f"{name}-{times[name]}" if times[name] else name)
        times[name] += 1
    return names


def check_paths(root: Path) -> list[str]:
    faults = []
    documents = sorted(root.glob("*.md"))
    for folder in DOCUMENT_FOLDERS:
        documents += sorted((root / folder).rglob("*.md"))
    for document in documents:
        text = document.read_text()
        name = document.relative_to(root)
        targets = []
        for link, place in LINK.findall(text):
            if "://" in link:
                continue
            target = document.parent / link if link else document
            targets.append(target)
            if place and target.suffix == ".md" and target.exists() and place not in places(target):
                faults.append(f"{name}: {target.resolve().relative_to(root.resolve())} has no #{place}")
        for code in CODE.findall(text):
            # Commands, patterns and placeholders are not paths.
            if code.startswith(TREE_FOLDERS) and not re.search(r"[\s*A-Z<]", code):
                targets.append(root / code)
        for target in targets:
            if not target.exists():
                faults.append(f"{name}: {target.resolve().relative_to(root.resolve())} does not exist")
    return faults


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check_table(root) + check_paths(root)
    for fault in faults:
        print(fault)
    print(f"capabilities: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

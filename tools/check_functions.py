#!/usr/bin/env python3
"""Names the functions of the project's sources that are longer than they may be.

Usage: check_functions.py [--most LINES]

Reads sources as clang-format leaves them: a function begins at a line that ends with "{" after ")" (or a word such as
const, noexcept, override) and ends at the next line that is "}" at the same depth. What its parentheses take, and a
line of template<…> before it, count. Exits with 1 if there is one.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST = 60
FOLDERS = ("include", "src", "cli", "fuzz", "examples", "tests", "python")
SUFFIXES = {".h", ".cc", ".c", ".cu", ".cuh"}
# What opens a block that is no function.
OTHER = re.compile(r"^\s*(}|extern \"C\" \{|(if|else|for|while|switch|do|case|namespace|class|struct|enum|union|return|try|catch)\b)")
FUNCTION_END = re.compile(r"\)( const)?( noexcept)?( override)?( final)?( HWY_ATTR)?( ->.*)? \{$")


def indentation(line):
    return len(line) - len(line.lstrip(" "))


def functions(lines):
    """(first, last) of each function, as numbers of lines from 0."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.endswith("{") or not FUNCTION_END.search(line):
            at += 1
            continue
        first = at
        depth = indentation(line)
        # Back to the line on which the signature begins: less indented than what continues it.
        while first > 0 and lines[first - 1].strip() and not lines[first - 1].rstrip().endswith((";", "}", "{", ":")) \
                and not lines[first - 1].lstrip().startswith(("//", "#")):
            first -= 1
        depth = indentation(lines[first])
        last = next((i for i in range(at + 1, len(lines)) if lines[i].startswith(" " * depth + "}") and
                     indentation(lines[i]) == depth), None)
        if last is None or OTHER.match(lines[first]):
            at += 1
            continue
        yield first, last
        at = last + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=MOST)
    most = parser.parse_args().most
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES]
    num_functions, longest, failed = 0, 0, False
    for path in paths:
        lines = path.read_text().splitlines()
        for first, last in functions(lines):
            num_functions += 1
            length = last - first + 1
            longest = max(longest, length)
            if length > most:
                failed = True
                print(f"{path.relative_to(ROOT)}:{first + 1}: {length} lines, the limit is {most}: {lines[first].strip()}")
    print(f"{num_functions} functions, the longest has {longest} lines")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Checks what libvarve.so exports: the functions and classes that public headers mark with VARVE_API.

Usage: check_exports.py LIBRARY INCLUDE_DIR [--nm NM] [--most N]

Fails if there are more than N symbols (300), if a symbol belongs to no marked name, or if a marked
function is missing (declared and never defined).
"""

import argparse
import pathlib
import re
import subprocess
import sys

# What may stand before the name of a symbol of a class.
ARTIFACT = re.compile(r"^(vtable for|VTT for|typeinfo for|typeinfo name for|non-virtual thunk to) ")


def marked_names(text):
    """Names of the classes and of the functions that a header marks."""
    text = re.sub(r"//[^\n]*|#[^\n]*", "", text)
    classes = set(re.findall(r"\b(?:class|struct) VARVE_API (\w+)", text))
    functions = set()
    for match in re.finditer(r"(?<!class )(?<!struct )VARVE_API ([^;{(]*?)(\w+)\(", text):
        functions.add(match.group(2))
    return classes, functions


def components(symbol):
    """varve::Plan::PageTokens() const -> ["varve", "Plan", "PageTokens"]."""
    name = ARTIFACT.sub("", symbol)
    name = re.sub(r"\[abi:\w+\]", "", name)
    return name.split("(")[0].split("::")


def check(symbols, classes, functions, most):
    problems = []
    if len(symbols) > most:
        problems.append(f"{len(symbols)} symbols, more than {most}")
    found = set()
    for symbol in symbols:
        parts = components(symbol)
        found.add(parts[-1])
        if len(parts) == 1:
            known = parts[0].startswith("varve_") and parts[0] in functions
        else:
            known = parts[0] == "varve" and (parts[1] in classes or parts[-1] in functions)
        if not known:
            problems.append(f"not of the public API: {symbol}")
    problems += [f"marked and not exported: {name}" for name in sorted(functions - found)]
    return problems


def self_test():
    classes, functions = marked_names(
        "class VARVE_API Cache {\n};\nstruct Plan {\n  VARVE_API int PageTokens() const;\n};\n"
        "VARVE_API Result<double>\nRungBytes(int a);  // VARVE_API not(this)\n"
        "VARVE_API const char* varve_version(void);\n")
    assert classes == {"Cache"} and functions == {"PageTokens", "RungBytes", "varve_version"}
    good = ["varve_version", "vtable for varve::Cache", "varve::Cache::Create(int)",
            "varve::Plan::PageTokens() const", "varve::RungBytes[abi:cxx11](int)"]
    assert check(good, classes, functions, 5) == []
    assert len(check(good, classes, functions, 4)) == 1
    for bad in ("varve::PickleMachine::Run()", "std::vector<int>::size()", "varve_secret", "fmt::x()"):
        assert check(good + [bad], classes, functions, 9) == [f"not of the public API: {bad}"], bad
    assert check(good[1:], classes, functions, 9) == ["marked and not exported: varve_version"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("include_dir", type=pathlib.Path)
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--most", type=int, default=300)
    arguments = parser.parse_args()
    self_test()
    classes, functions = set(), set()
    for header in sorted(arguments.include_dir.glob("varve/*.h")):
        more_classes, more_functions = marked_names(header.read_text())
        classes |= more_classes
        functions |= more_functions
    listing = subprocess.run([arguments.nm, "-DC", "--defined-only", arguments.library],
                             capture_output=True, text=True, check=True).stdout
    symbols = [line.split(" ", 2)[2] for line in listing.splitlines() if line]
    problems = check(symbols, classes, functions, arguments.most)
    print(f"{len(symbols)} symbols, {len(classes)} classes and {len(functions)} functions marked")
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Runs clang-tidy on the project's sources, and only on those that changed since they last passed.

Usage: run_tidy.py BUILD_DIR [--jobs N] [--all]

A source is skipped if it passed before with the same text, the same project headers, the same
command line and the same .clang-tidy. What passed is kept in BUILD_DIR/tidy-passed, one digest a line.
BUILD_DIR holds compile_commands.json of a build without unity files. Exits with 1 if a source has findings.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "cli", "fuzz", "examples", "tests")
# Path analysis of gtest's macros takes three quarters of the time; the sanitizers run these sources instead.
CHECKS_OF_TESTS = "-clang-analyzer-*"
# clang-tidy counts what it did not show; nobody needs that.
NOISE = re.compile(r"^(\d+ warnings? (and \d+ errors? )?generated\.|Suppressed .*|Use -header-filter.*)$")


def sources(build_dir):
    """One command per source file of the project: {path: command}."""
    commands = {}
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS:
            commands.setdefault(path, entry["command"])
    return commands


def project_files(path, command):
    """The source and every header of the project that it includes, as the compiler finds them."""
    arguments = shlex.split(command)
    output = arguments.index("-o")
    arguments = arguments[:output] + arguments[output + 2:]
    rule = subprocess.run([*arguments, "-MM"], capture_output=True, text=True, check=True).stdout
    names = rule.replace("\\\n", " ").split(":", 1)[1].split()
    files = {pathlib.Path(name).resolve() for name in names} | {path}
    return sorted(file for file in files if file.is_relative_to(ROOT))


def digest(path, command, configuration):
    """What decides the findings of one source; independent of where the checkout lies."""
    hasher = hashlib.sha256(configuration)
    hasher.update(command.replace(str(ROOT), ".").encode())
    for file in project_files(path, command):
        hasher.update(f"\n{file.relative_to(ROOT)}\n".encode())
        hasher.update(file.read_bytes())
    return hasher.hexdigest()


def is_test(path):
    return path.name.endswith("_test.cc") or path.relative_to(ROOT).parts[0] == "tests"


def tidy(path, build_dir):
    checks = [f"--checks={CHECKS_OF_TESTS}"] if is_test(path) else []
    result = subprocess.run(["clang-tidy", "--quiet", "-p", str(build_dir), *checks, str(path)],
                            capture_output=True, text=True, check=False)
    lines = (result.stdout + result.stderr).splitlines()
    return result.returncode, [line for line in lines if not NOISE.match(line)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="also what passed before")
    arguments = parser.parse_args()

    configuration = (ROOT / ".clang-tidy").read_bytes()
    ledger = arguments.build_dir / "tidy-passed"
    passed = set(ledger.read_text().split()) if ledger.exists() and not arguments.all else set()

    def work(item):
        path, command = item
        key = digest(path, command, configuration)
        return (path, key, None, []) if key in passed else (path, key, *tidy(path, arguments.build_dir))

    commands = sources(arguments.build_dir)
    num_skipped, failed = 0, []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool, ledger.open("a") as log:
        for number, (path, key, code, lines) in enumerate(pool.map(work, commands.items()), 1):
            name = path.relative_to(ROOT)
            if code is None:
                num_skipped += 1
                continue
            print(f"[{number}/{len(commands)}] {name}", flush=True)
            if code == 0:
                log.write(key + "\n")
                log.flush()
            else:
                failed.append(name)
                print("\n".join(lines), flush=True)
    print(f"{len(commands)} sources, {num_skipped} of them unchanged since they passed, {len(failed)} with findings")
    for name in failed:
        print(f"  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

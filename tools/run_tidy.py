#!/usr/bin/env python3
"""Runs clang-tidy on the project's sources, and only on those that changed since they last passed.

Usage: run_tidy.py BUILD_DIR [--jobs N] [--all] [--quick] [--only PATH…]

A source is skipped if it passed before with the same text, the same project headers, the same
command line and the same .clang-tidy. What passed is kept in BUILD_DIR/tidy-passed, one digest a line.
BUILD_DIR holds compile_commands.json of a build without unity files. Exits with 1 if a source has findings.

Most of the time goes into headers, so sources with the same command line are linted up to eight at a time, as
one file that includes them. Where names clash in such a file, its halves are linted.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "cli", "fuzz", "examples", "tests", "python")
MAX_BATCH = 8
# In a batch the sources are included files: that is what this check looks for,
CHECKS_OF_BATCHES = "-bugprone-suspicious-include"
# which have findings only if this names them,
BATCH_FILTER = r"/(include/varve|src|cli|examples|fuzz|tests|python)/[^ ]*\.(h|cc)$"
# and whose paths are analysed only if told.
ANALYSE_INCLUDED = ["--extra-arg=-Xclang", "--extra-arg=-analyzer-opt-analyze-headers"]
# A source that Highway compiles several times includes itself.
INCLUDES_ITSELF = re.compile(r"HWY_TARGET_INCLUDE|foreach_target")
# Tests: path analysis of gtest's macros takes three quarters of the time; the sanitizers run these sources instead.
NO_PATHS = "-clang-analyzer-*"
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
PLACE = re.compile(r"^(/[^:]+):\d+:\d+: (warning|error|note): ")
# clang-tidy counts what it did not show; nobody needs that.
NOISE = re.compile(r"^(\d+ warnings? (and \d+ errors? )?generated\.|Suppressed .*|Use -header-filter.*)$")


def sources(build_dir):
    """One command per source file of the project: {path: command}."""
    commands = {}
    for entry in json.loads((build_dir / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        # Device code is nvcc's; compiled for the host, its words are CUDA's, not ours.
        if path.suffix == ".cu" or "VARVE_CUDA_EMULATED" in entry["command"] or "emulation" in path.parts:
            continue
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in FOLDERS:
            commands.setdefault(path, entry["command"])
    return commands


def project_files(path, command):
    """The source and every header of the project that it includes, whatever the preprocessor would leave out."""
    folders = [pathlib.Path(argument[2:]) for argument in shlex.split(command) if argument.startswith("-I")]
    files, waiting = {path}, [path]
    while waiting:
        file = waiting.pop()
        for name in included_names(file):
            found = next((folder / name for folder in (file.parent, *folders) if (folder / name).is_file()), None)
            if found is not None and (found := found.resolve()).is_relative_to(ROOT) and found not in files:
                files.add(found)
                waiting.append(found)
    return sorted(files)


@functools.cache
def included_names(file):
    return INCLUDE.findall(file.read_text(errors="replace"))


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


def run(arguments, directory):
    """The exit status and what there is to read."""
    result = subprocess.run(["clang-tidy", "--quiet", *arguments], capture_output=True, text=True, check=False, cwd=directory)
    lines = (result.stdout + result.stderr).splitlines()
    return result.returncode, [line for line in lines if not NOISE.match(line)]


def flags(path, command):
    """The options of a command line that decide how its source is read."""
    arguments = shlex.split(command)
    first = next(i for i, argument in enumerate(arguments) if argument.startswith("-"))
    output = arguments.index("-o")
    kept = arguments[first:output] + arguments[output + 2:]
    return tuple(argument for argument in kept if argument not in ("-c", str(path)))


def batches(commands):
    """Lists of sources that can be linted as one file; most of the work first."""
    groups = {}
    for path, command in commands.items():
        alone = path.suffix != ".cc" or INCLUDES_ITSELF.search(path.read_text())
        key = path if alone else (path.relative_to(ROOT).parts[:2], is_test(path), flags(path, command))
        groups.setdefault(key, []).append(path)
    lists = [group[i:i + MAX_BATCH] for group in groups.values() for i in range(0, len(group), MAX_BATCH)]
    return sorted(lists, key=len, reverse=True)


def findings(lines):
    """The findings of a batch by file: each begins with a line that names its place."""
    found, place = {}, None
    for line in lines:
        match = PLACE.match(line)
        if match and match.group(2) != "note":
            place = pathlib.Path(match.group(1))
        found.setdefault(place, []).append(line)
    return found


def tidy(paths, commands, build_dir, quick):
    """Exit status and findings of each source."""
    build_dir = build_dir.resolve()
    no_paths = [NO_PATHS] if quick or is_test(paths[0]) else []
    if len(paths) == 1:
        return {paths[0]: run([f"--checks={','.join(no_paths)}", "-p", str(build_dir), str(paths[0])], build_dir)}
    name = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:16]
    batch = build_dir / "tidy-batches" / f"{name}.cc"
    batch.parent.mkdir(exist_ok=True)
    batch.write_text("".join(f'#include "{path}"\n' for path in paths))
    checks = ",".join([CHECKS_OF_BATCHES, *no_paths])
    code, lines = run([f"--checks={checks}", f"--header-filter={BATCH_FILTER}", *ANALYSE_INCLUDED, str(batch), "--",
                       *flags(paths[0], commands[paths[0]])], build_dir)
    if code == 0:
        return {path: (0, []) for path in paths}
    found = findings(lines)
    if not any("[clang-diagnostic-error]" in line for line in lines):
        # Findings of headers are shown with the first source, and all of them count as failed.
        shared = [line for place in found if place not in paths for line in found[place]]
        return {path: (1 if shared or path in found else 0, found.get(path, []) + (shared if path == paths[0] else []))
                for path in paths}
    half = len(paths) // 2  # names clash
    return {**tidy(paths[:half], commands, build_dir, quick), **tidy(paths[half:], commands, build_dir, quick)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="also what passed before")
    parser.add_argument("--quick", action="store_true",
                        help="without analysis of paths, which takes most of the time; such a pass is not kept")
    parser.add_argument("--only", nargs="+", type=pathlib.Path, metavar="PATH", help="these sources and folders alone")
    arguments = parser.parse_args()

    configuration = (ROOT / ".clang-tidy").read_bytes()
    ledger = arguments.build_dir / "tidy-passed"
    passed = set(ledger.read_text().split()) if ledger.exists() and not arguments.all else set()

    commands = sources(arguments.build_dir)
    if arguments.only:
        chosen = [path.resolve() for path in arguments.only]
        commands = {path: command for path, command in commands.items() if any(path.is_relative_to(one) for one in chosen)}
    failed, num_done = [], 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool, ledger.open("a") as log:
        keys = {path: digest(path, command, configuration) for path, command in commands.items()}
        changed = {path: command for path, command in commands.items() if keys[path] not in passed}
        work = [pool.submit(tidy, paths, changed, arguments.build_dir, arguments.quick) for paths in batches(changed)]
        for done in concurrent.futures.as_completed(work):
            for path, (code, lines) in done.result().items():
                num_done += 1
                name = path.relative_to(ROOT)
                print(f"[{num_done}/{len(changed)}] {name}", flush=True)
                if code == 0 and not arguments.quick:
                    log.write(keys[path] + "\n")
                    log.flush()
                elif code != 0:
                    failed.append(name)
                    print("\n".join(lines), flush=True)
    num_skipped = len(commands) - len(changed)
    print(f"{len(commands)} sources, {num_skipped} of them unchanged since they passed, {len(failed)} with findings")
    for name in sorted(failed):
        print(f"  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

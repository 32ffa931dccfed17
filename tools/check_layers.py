#!/usr/bin/env python3
"""Checks that includes point down (ARCHITECTURE.md, "Layers").

    base <- kernels <- rungs, store, fold <- pages <- attention, cuda, file <- cache <- c_api, runtime <- serve <- cli

The folder runtime/cuda sees cuda/layers and cuda/memory besides what runtime sees, and no other folder of runtime sees it.
`retention` sees base alone, `plan` sees base, the tables of rungs and policies and which tokens fold makes a row, `runtime` sees kernels and base and
reaches the cache through include/varve alone, and a public header includes public headers and the standard library,
nothing else; python/native sees the public headers and pybind11. Every layer of src/ may include
itself and include/varve. Neighbours (rungs and store, say) do not see each other.

    check_layers.py [ROOT]       check the tree at ROOT (default: the repository of this file)
    check_layers.py --self-test  build small good and bad trees and expect the right verdicts

Prints one `file:line: ...` per violation; exits 1 if there was any.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

PUBLIC = "include/varve"
_LOWEST = {"kernels", "base"}
_BELOW_PAGES = {"retention", "rungs", "store"} | _LOWEST
_BELOW_CACHE = {"pages", "plan", "attention", "file", "fold", "cuda"} | _BELOW_PAGES

# Layer -> the layers that it may include, besides itself and include/varve.
ALLOWED = {
    "base": set(),
    "kernels": {"base"},
    "rungs": _LOWEST,
    "store": _LOWEST,
    "fold": _LOWEST,
    "retention": {"base"},
    "plan": {"base", "rungs", "retention", "fold"},
    "pages": _BELOW_PAGES,
    "attention": {"pages"} | _BELOW_PAGES,
    "cuda": {"pages", "attention"} | _BELOW_PAGES,
    "file": {"pages", "plan"} | _BELOW_PAGES,
    "cache": _BELOW_CACHE,
    "c_api": {"cache", "plan", "base"},
    "runtime": _LOWEST,
    "serve": {"runtime"} | _LOWEST,
    PUBLIC: set(),
    "examples": set(),
    "python": set(),
}
# Folders that see folders of another layer.
FOLDERS_SEEN = {"src/runtime/cuda": {"src/cuda/layers", "src/cuda/memory"}}
# Folders that nothing outside them includes.
CLOSED_FOLDERS = {"src/runtime/cuda"}
SRC_LAYERS = set(ALLOWED) - {PUBLIC, "examples", "python"}
# On top of everything: they may include any layer of src/, but nothing includes them.
for _top in ("cli", "bench", "fuzz", "tests"):
    ALLOWED[_top] = set(SRC_LAYERS)

# Layers that an outside program could have written: no third-party header either.
STANDARD_ONLY = {PUBLIC, "examples"}

SUFFIXES = {".h", ".hpp", ".inc", ".c", ".cc", ".cu", ".cuh"}
C_HEADERS = {
    "assert", "ctype", "errno", "float", "inttypes", "limits", "math", "signal", "stdarg", "stdbool",
    "stddef", "stdint", "stdio", "stdlib", "string", "time",
}  # fmt: skip

# Highway compiles a file again per target through HWY_TARGET_INCLUDE, which is an include like others.
INCLUDE = re.compile(r'^\s*#\s*(?:include\s*|define\s+HWY_TARGET_INCLUDE\s+)[<"]([^>"]+)[>"]')


class Violation(NamedTuple):
    path: Path  # relative to the root
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path.as_posix()}:{self.line}: {self.message}"


def layer_of(path: Path) -> Optional[str]:
    """The layer of a file by its path relative to the root; None if it belongs to no known one."""
    parts = path.parts
    if parts[:2] == ("include", "varve"):
        return PUBLIC
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 and parts[1] in SRC_LAYERS else None
    return parts[0] if parts[0] in ALLOWED and parts[0] not in SRC_LAYERS else None


def is_standard(name: str) -> bool:
    return "/" not in name and ("." not in name or (name.endswith(".h") and name[:-2] in C_HEADERS))


def resolve(root: Path, includer: Path, name: str) -> Optional[Path]:
    """Where `name` leads, relative to the root; None for a header from outside the tree."""
    for folder in (includer.parent, Path("include"), Path("src"), Path(".")):
        candidate = (root / folder / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root)
    # A file that does not exist (yet) still shows by its name where it points.
    first = Path(name).parts[0] if Path(name).parts else ""
    if first == "varve":
        return Path("include", name)
    if first in SRC_LAYERS:
        return Path("src", name)
    return None


def check_include(root: Path, includer: Path, layer: str, name: str) -> Optional[str]:
    """What is wrong with `#include name` in a file of `layer`, or None."""
    target = resolve(root, includer, name)
    if target is None:
        if layer in STANDARD_ONLY and not is_standard(name):
            return f'{layer} includes "{name}", which is neither standard nor {PUBLIC}'
        return None
    target_layer = layer_of(target)
    from_folder, to_folder = ("/".join(path.parts[:3]) for path in (includer, target))
    if to_folder in FOLDERS_SEEN.get(from_folder, ()):
        return None
    if to_folder in CLOSED_FOLDERS and from_folder != to_folder and layer not in ("cli", "bench", "fuzz", "tests"):
        return f'"{name}" is the business of {to_folder} alone'
    if target_layer is None:
        return f'"{name}" is in no layer that may be included'
    if target_layer in (layer, PUBLIC) or target_layer in ALLOWED[layer]:
        return None
    # Reference models: what is never part of the library may use them.
    if target_layer == "tests" and (layer == "fuzz" or includer.name.endswith(("_test.cc", "_testing.h"))):
        return None
    # What makes test data for one layer may serve the tests of another.
    if includer.name.endswith("_test.cc") and target.name.endswith("_testing.h"):
        return None
    seen = ", ".join(sorted(ALLOWED[layer] | {PUBLIC}))
    return f'{layer} includes "{name}" of {target_layer}; {layer} sees {seen}'


def source_files(root: Path) -> Iterator[Path]:
    for folder in ("include", "src", "cli", "bench", "fuzz", "tests", "examples", "python"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(root)


def check_tree(root: Path) -> tuple[list[Violation], int]:
    """All violations below root, and the number of files read."""
    root = root.resolve()
    violations: list[Violation] = []
    num_files = 0
    for path in source_files(root):
        num_files += 1
        layer = layer_of(path)
        if layer is None:
            known = ", ".join(sorted(SRC_LAYERS))
            violations.append(Violation(path, 1, f"file is in no layer; src/ has {known}"))
            continue
        text = (root / path).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            match = INCLUDE.match(line)
            message = check_include(root, path, layer, match[1]) if match else None
            if message:
                violations.append(Violation(path, number, message))
    return violations, num_files


# --- self test ---

GOOD_TREE = {
    "include/varve/plan.h": '#include <vector>\n#include <stdint.h>\n#include "varve/status.h"\n',
    "include/varve/status.h": "#include <string>\n",
    "src/base/half.h": '#include "varve/status.h"\n',
    "src/kernels/dot.cc": '#define HWY_TARGET_INCLUDE "kernels/dot.cc"\n#include "hwy/highway.h"\n',
    "src/rungs/block/q8.cc": '#include "kernels/dot.h"\n#include "q8_format.h"\n',
    "src/rungs/block/q8_format.h": "",
    "src/retention/h2o.cc": '#include "base/half.h"\n#include "retention/policy.h"\n',
    "src/plan/plan.cc": '#include "rungs/block/q8_format.h"\n#include "retention/policy.h"\n',
    "src/pages/page.h": '#include "rungs/block/q8_format.h"\n#include "store/codec.h"\n',
    "src/attention/attention.cc": '#include "pages/page.h"\n',
    "src/file/reader.cc": '#include "pages/page.h"\n#include "plan/plan.h"\n',
    "src/cache/cache.cc": '#include "attention/attention.h"\n#include "file/reader.h"\n#include "fold/net.h"\n',
    "src/c_api/c_api.cc": '#include "cache/cache.h"\n',
    "src/serve/server.cc": '#include "runtime/llama/llama.h"\n',
    "src/cache/cache_test.cc": '#include <gtest/gtest.h>\n#include "tests/model.h"\n',
    "src/cuda/layers/norm.h": "",
    "src/runtime/cuda/step.cc": '#include "cuda/layers/norm.h"\n#include "runtime/cuda/step.h"\n',
    "src/runtime/llama/llama.cc": '#include "varve/plan.h"\n#include "base/half.h"\n',
    "src/runtime/llama/llama_testing.h": '#include "tests/model.h"\n',
    "cli/main.cc": '#include "kernels/dot.h"\n#include <CLI/CLI.hpp>\n',
    "examples/attend.c": "#include <stdio.h>\n#include <varve/status.h>\n",
    "fuzz/cache_fuzzer.cc": '#include "tests/model.h"\n',
    "python/native/module.cc": '#include <pybind11/pybind11.h>\n#include "errors.h"\n#include "varve/plan.h"\n',
    "python/native/errors.h": '#include "varve/status.h"\n',
    "tests/end_to_end_test.cc": '#include "cache/cache.h"\n',
    "tests/cache/fork_test.cc": '#include "cache/cache.h"\n#include "tests/cache/twin.h"\n',
    "tests/cache/twin.h": '#include "tests/model.h"\n',
    "tests/model.h": '#include "rungs/block/q8_format.h"\n',
}

# One bad file each, added to the good tree; the violation is expected on the given line.
BAD_FILES = [
    ("src/base/up.cc", '\n\n#include "kernels/dot.h"\n', 3),
    ("src/kernels/up.cc", '#include "rungs/block/q8_format.h"\n', 1),
    ("src/kernels/target.cc", '#define HWY_TARGET_INCLUDE "cache/cache.cc"\n', 1),
    ("src/rungs/sideways.cc", '#include <string>\n#  include "store/codec.h"\n', 2),
    ("src/rungs/dots.cc", '#include "../cache/cache.cc"\n', 1),
    ("src/retention/up.cc", '#include "kernels/dot.h"\n', 1),
    ("src/plan/sideways.cc", '#include "pages/page.h"\n', 1),
    ("src/pages/up.cc", '#include "attention/attention.h"\n', 1),
    ("src/pages/plan.cc", '#include "plan/plan.h"\n', 1),
    ("src/attention/sideways.cc", '#include "file/reader.h"\n', 1),
    ("src/file/sideways.cc", '#include "attention/attention.h"\n', 1),
    ("src/runtime/serve.cc", '#include "serve/server.h"\n', 1),
    ("src/cache/up.cc", '#include "runtime/llama/llama.h"\n', 1),
    ("src/cache/model.cc", '#include "tests/model.h"\n', 1),
    ("src/pages/twin.cc", '#include "tests/cache/twin.h"\n', 1),
    ("src/cache/cli.cc", '#include "../../cli/main.cc"\n', 1),
    ("src/runtime/past_the_api.cc", '#include "cache/cache.h"\n', 1),
    ("src/runtime/cuda/pages.cc", '#include "cuda/backend/pages.h"\n', 1),
    ("src/runtime/llama/kernels.cc", '#include "cuda/layers/norm.h"\n', 1),
    ("src/runtime/llama/gpu.cc", '#include "runtime/cuda/step.h"\n', 1),
    ("include/varve/inward.h", '#include "base/half.h"\n', 1),
    ("include/varve/third_party.h", "#include <vector>\n#include <fmt/core.h>\n", 2),
    ("include/varve/isa.h", "#include <immintrin.h>\n", 1),
    ("python/native/inward.cc", '#include "cache/cache.h"\n', 1),
    ("examples/inward.cc", '#include "base/half.h"\n', 1),
    ("src/misc/nowhere.cc", "", 1),
    ("src/nowhere.cc", "", 1),
]


def write_tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def self_test() -> int:
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), GOOD_TREE)
        violations, num_files = check_tree(Path(folder))
        failures += [f"good tree: unexpected {v}" for v in violations]
        if num_files != len(GOOD_TREE):
            failures.append(f"good tree: read {num_files} files of {len(GOOD_TREE)}")
    for name, text, line in BAD_FILES:
        with tempfile.TemporaryDirectory() as folder:
            write_tree(Path(folder), GOOD_TREE | {name: text})
            violations, _ = check_tree(Path(folder))
            found = [(v.path.as_posix(), v.line) for v in violations]
            if found != [(name, line)]:
                failures.append(f"{name}: expected one violation on line {line}, found {found}")
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"self test: {len(BAD_FILES) + 1} trees, {len(failures)} failures")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks that includes point down.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--self-test", action="store_true", help="test the check itself")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    violations, num_files = check_tree(args.root)
    for violation in violations:
        print(violation, file=sys.stderr)
    if num_files == 0:
        print(f"{args.root}: no source files", file=sys.stderr)
        return 1
    print(f"layers: {num_files} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())

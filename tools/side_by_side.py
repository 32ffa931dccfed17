"""What the scripts share that run other programs beside ours: running them, medians, tables."""

import statistics
import subprocess
import sys


class CompareError(Exception):
    """A message for people."""


def last_lines(output: str, count: int = 8) -> str:
    return "\n".join("  " + line for line in output.strip().splitlines()[-count:])


def run(command: list[str], may_fail: bool = False) -> str:
    """Standard output and errors together, as they came."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False)
    except OSError as error:
        raise CompareError(f"{command[0]}: {error.strerror}") from error
    output = done.stdout.decode(errors="replace")
    if done.returncode != 0 and not may_fail:
        raise CompareError(f"{' '.join(command)}\nended with status {done.returncode}:\n{last_lines(output)}")
    return output


def say(text: str) -> None:
    print(f"==> {text}", file=sys.stderr, flush=True)


def median_of(samples: dict) -> dict:
    return {key: statistics.median(values) for key, values in samples.items()}


def render(headers: list[str], rows: list[list[str]]) -> str:
    """Columns that line up; all but the first are right-aligned."""
    widths = [max(len(row[i]) for row in [headers, *rows]) for i in range(len(headers))]
    lines = []
    for row in [headers, *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)

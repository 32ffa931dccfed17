#!/usr/bin/env python3
"""Kills a program that works on a disk tier, again and again, at random moments (kill -9).

    disk_tier_kill_test.py disk_tier_load [KILLS]

After each kill: the files are within the budget, the next process finds at least nine tenths of the pages that
the last one had written, and no page ever has wrong bytes (the program itself compares them and says so).
"""

import os
import random
import subprocess
import sys
import tempfile
import threading
import time

BUDGET = 4 << 20


def lines_of(process, into):
    for line in process.stdout:
        into.append(line.strip())


def run_once(program, folder, rng):
    """Starts the program, kills it some time after it has looked at its pages; its lines."""
    process = subprocess.Popen([program, folder, str(BUDGET), str(rng.randrange(1 << 32))],
                               stdout=subprocess.PIPE, text=True)
    lines = []
    reader = threading.Thread(target=lines_of, args=(process, lines))
    reader.start()
    try:
        limit = time.monotonic() + 60
        while not lines and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.001)
        time.sleep(rng.choice([0, rng.uniform(0, 0.02), rng.uniform(0, 0.2)]))
        ended = process.poll()
    finally:
        process.kill()
        process.wait()
        reader.join()
    if ended is not None:
        sys.exit(f"ended by itself with {ended}: {lines[-3:]}")
    return lines


def number(lines, word, last):
    values = [int(line.split()[1]) for line in lines if line.startswith(word + " ")]
    return (values[-1] if last else values[0]) if values else None


def main():
    program, kills = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10
    rng = random.Random(kills)
    held, most = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for kill in range(kills):
            lines = run_once(program, folder, rng)
            found = number(lines, "found", last=False)
            if found is None:
                sys.exit(f"kill {kill}: no pages were looked at: {lines}")
            if found < 0.9 * held:
                sys.exit(f"kill {kill}: found {found} of {held} pages")
            size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
            if size > BUDGET:
                sys.exit(f"kill {kill}: {size} bytes > {BUDGET}")
            held = number(lines, "held", last=True) or found
            most = max(most, held)
    if kills >= 10 and most < 100:
        sys.exit(f"only {most} pages were ever held: nothing was tested")
    print(f"{kills} kills, up to {most} pages held, none wrong")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What one conversation holds in `varve serve`: while it is active, at rest, and spilled to disk.

    tools/measure_idle.py build/varve -m MODEL -f TEXT [--tokens 4096] [--kv PLAN] [--writes leaving]

Starts a server with a disk cache of its own, reads the first tokens of a text as a prompt, and looks at
/metrics and at the files after each step. Memory is what the pool holds for pages, and page tables; disk is
what the files take. Ends with a second turn, which must find the first. Standard library alone.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import urllib.request

NAMES = ["varve_bytes_held", "varve_bytes_tables", "varve_bytes_f16", "varve_prefix_pages_rested_total",
         "varve_prefix_pages_spilled_total", "varve_prefix_pages"]


class Server:
    def __init__(self, arguments, folder):
        self.folder = folder
        self.process = subprocess.Popen(
            [arguments.program, "serve", "-m", arguments.model, "--kv", arguments.kv, "--port", "0", "--idle",
             str(arguments.idle), "--spill", str(arguments.spill), "--disk-cache", folder, "--tier-writes",
             arguments.writes], stderr=subprocess.PIPE, text=True)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            found = re.search(r"on (http://[0-9.]+:\d+)", line)
            if found:
                self.address = found[1]
                break
        else:
            raise SystemExit("the server ended:\n" + "".join(lines))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def post(self, path, body):
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=3600) as answer:
            return json.load(answer)

    def figures(self):
        with urllib.request.urlopen(self.address + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        values = {name: float(re.search(rf"^{name} (\S+)$", text, re.M)[1]) for name in NAMES}
        files = [os.stat(os.path.join(self.folder, name)) for name in os.listdir(self.folder)]
        values["disk"] = sum(min(one.st_size, one.st_blocks * 512) for one in files)
        return values

    def wait(self, name, value):
        for _ in range(1200):
            now = self.figures()
            if now[name] >= value:
                return now
            time.sleep(0.25)
        raise SystemExit(f"{name} is {now[name]}, not {value}, after five minutes")


def measure(arguments, folder):
    server = Server(arguments, folder)
    try:
        with open(arguments.text, encoding="utf-8") as file:
            tokens = server.post("/tokenize", {"content": file.read(40 * arguments.tokens)})["tokens"]
        prompt, more = tokens[:arguments.tokens], tokens[arguments.tokens:arguments.tokens + 32]
        if len(more) < 32:
            raise SystemExit(f"{arguments.text}: {len(tokens)} tokens are too few")
        empty = server.figures()
        server.post("/completion", {"prompt": prompt, "n_predict": 1, "temperature": 0})
        rows = [("active", server.figures())]
        f16 = rows[0][1]["varve_bytes_f16"]
        pages = rows[0][1]["varve_prefix_pages"]
        # A page of exact= does not rest: what does is done when no more comes.
        now, last = server.wait("varve_prefix_pages_rested_total", 1), -1
        while now["varve_prefix_pages_rested_total"] != last:
            last = now["varve_prefix_pages_rested_total"]
            time.sleep(1.5)
            now = server.figures()
        rows.append(("at rest", now))
        rows.append(("spilled", server.wait("varve_prefix_pages_spilled_total", pages)))
        answer = server.post("/completion", {"prompt": prompt + more, "n_predict": 1, "temperature": 0})
        rows.append(("second turn", server.figures()))
        print(f"{arguments.kv}, {len(prompt)} tokens: {f16:.0f} bytes in f16, {pages:.0f} pages, "
              f"{last:.0f} of them go to rest; --tier-writes {arguments.writes}")
        print(f"{'':12} {'memory':>12} {'tables':>9} {'disk':>12} {'all':>12} {'f16 / all':>9}")
        for name, row in rows:
            held = row["varve_bytes_held"] - empty["varve_bytes_held"]
            tables = row["varve_bytes_tables"] - empty["varve_bytes_tables"]
            disk = row["disk"] - empty["disk"]
            total = held + tables + disk
            print(f"{name:12} {held:12.0f} {tables:9.0f} {disk:12.0f} {total:12.0f} {f16 / total:9.2f}")
        print(f"the second turn found {answer['timings']['cache_n']} of {len(prompt + more)} tokens")
    finally:
        server.process.terminate()
        server.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--text", required=True)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--kv", default="t4,idle_k=t3,idle_v=t2")
    parser.add_argument("--writes", default="leaving", choices=["leaving", "computed"])
    parser.add_argument("--idle", type=float, default=3)
    parser.add_argument("--spill", type=float, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(arguments, folder)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Many conversations at once against OpenAI-compatible servers: errors, speed, time to the first token, memory.

    varve serve -m smollm2 -j 64 --port 8080 & llama-server -m model.gguf -np 64 -c 163840 --port 8081 &
    tools/serve_load.py http://localhost:8080 http://localhost:8081 --conversations 64 --turns 20 --ignore-eos

Every conversation begins with the same system prompt and says something of its own each turn; the next turn comes when
the answer is there. All is greedy and streamed. Several servers are measured one after the other, --rounds times; the
others are idle meanwhile. Ratios are to the last one.

--verify N asks N of the requests again when all is over, alone and with "cache_prompt": false; the answers must be
equal. Varve promises that with --no-reuse-generated (docs/serve.md), other servers do not. --first-token N measures an
idle server: N prompts that it has never seen, each asked twice.
"""

import argparse
import dataclasses
import http.client
import json
import os
import random
import statistics
import sys
import threading
import time
import urllib.parse
from pathlib import Path

from side_by_side import render, say

RULE = "Rule {}: name the village, the year and the weather before you tell of the {}, and keep to what was said. "
THINGS = ["mill", "river", "orchard", "bridge", "market", "chapel", "harbour", "forest", "school", "well"]
QUESTION = "Question {} of traveller {}: what happened at the {} when the {} was closed, and who was there to see it?"
TOKENS_OF_RULE = 25


@dataclasses.dataclass
class Exchange:
    messages: list
    text: str = ""
    error: str = ""
    first_token_s: float = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0


def system_prompt(tokens: int, salt: str = "") -> str:
    rules = max(tokens // TOKENS_OF_RULE, 1)
    return f"You tell of a valley. {salt}" + "".join(RULE.format(i, THINGS[i % 10]) for i in range(rules))


def question(conversation: int, turn: int) -> str:
    return QUESTION.format(turn, conversation, THINGS[conversation % 10], THINGS[turn % 10])


def read_stream(answer, exchange: Exchange, begin: float) -> None:
    for line in answer:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            raise ValueError(chunk["error"].get("message", "error"))
        for choice in chunk.get("choices", []):
            text = choice.get("delta", {}).get("content") or ""
            if text and not exchange.text:
                exchange.first_token_s = time.monotonic() - begin
            exchange.text += text
        if usage := chunk.get("usage"):
            exchange.prompt_tokens = usage["prompt_tokens"]
            exchange.tokens = usage["completion_tokens"]
            exchange.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    if not exchange.tokens:
        raise ValueError("the stream ended without usage")


def ask(url: str, messages: list, options, **fields) -> Exchange:
    """One answer. What went wrong is in its error."""
    exchange = Exchange(list(messages))
    body = {"model": "any", "messages": messages, "temperature": 0, "max_tokens": options.max_tokens, "stream": True,
            "stream_options": {"include_usage": True}} | ({"ignore_eos": True} if options.ignore_eos else {}) | fields
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {})
    place = urllib.parse.urlsplit(url)
    begin = time.monotonic()
    link = http.client.HTTPConnection(place.hostname, place.port or 80, timeout=options.timeout)
    try:
        link.request("POST", place.path.rstrip("/") + "/v1/chat/completions", json.dumps(body), headers)
        answer = link.getresponse()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}: {answer.read(500).decode(errors='replace')}")
        read_stream(answer, exchange, begin)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        exchange.error = f"{type(error).__name__}: {error}"
    finally:
        link.close()
    return exchange


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_seconds(pid: int) -> float:
    """Of all its threads so far: what else runs on the machine changes it little."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load:
    """All conversations against one server."""

    def __init__(self, url: str, pid: int | None, options):
        self.url, self.pid, self.options = url, pid, options
        self.exchanges: list[Exchange] = []
        self.resident: list[int] = []
        self.lock = threading.Lock()
        self.over = threading.Event()

    def talk(self, conversation: int) -> None:
        messages = [{"role": "system", "content": system_prompt(self.options.system_tokens)}]
        for turn in range(self.options.turns):
            if time.monotonic() >= self.deadline:
                return
            messages.append({"role": "user", "content": question(conversation, turn)})
            exchange = ask(self.url, messages, self.options)
            with self.lock:
                self.exchanges.append(exchange)
            if exchange.error:
                return
            messages.append({"role": "assistant", "content": exchange.text})

    def watch(self) -> None:
        """Memory, and a line of progress now and then."""
        total = self.options.conversations * self.options.turns
        seconds = 0
        while True:
            if self.pid:
                self.resident.append(resident_bytes(self.pid))
            if self.over.wait(1):
                return
            seconds += 1
            if seconds % 15 == 0:
                say(f"{self.url}: {seconds} s, {len(self.exchanges)} of {total} answers, "
                    f"{sum(bool(e.error) for e in self.exchanges)} errors")

    def run(self) -> dict:
        begin = time.monotonic()
        cpu_begin = cpu_seconds(self.pid) if self.pid else 0
        self.deadline = begin + self.options.seconds
        watcher = threading.Thread(target=self.watch)
        watcher.start()
        threads = [threading.Thread(target=self.talk, args=(i,)) for i in range(self.options.conversations)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begin
        self.over.set()
        watcher.join()
        return self.figures(seconds) | {"cpu_seconds": cpu_seconds(self.pid) - cpu_begin if self.pid else 0}

    def figures(self, seconds: float) -> dict:
        good = [e for e in self.exchanges if not e.error]
        waits = sorted(e.first_token_s for e in good) or [0.0]
        prompt, cached = sum(e.prompt_tokens for e in good), sum(e.cached_tokens for e in good)
        tokens = sum(e.tokens for e in good)
        return {"url": self.url, "seconds": seconds, "requests": len(self.exchanges),
                "errors": len(self.exchanges) - len(good), "first_error": next((e.error for e in self.exchanges if e.error), ""),
                "tokens": tokens, "prompt_tokens": prompt, "cached_tokens": cached,
                "tokens_per_s": tokens / seconds, "prompt_tokens_per_s": prompt / seconds,
                "first_token_p50_s": statistics.median(waits), "first_token_p99_s": waits[int(0.99 * (len(waits) - 1))],
                "resident_first": self.resident[0] if self.resident else 0,
                "resident_half": self.resident[len(self.resident) // 2] if self.resident else 0,
                "resident_last": self.resident[-1] if self.resident else 0, "resident_max": max(self.resident, default=0)}


def verify(load: Load, options) -> dict:
    """Some of the requests again, alone and computed anew."""
    good = [e for e in load.exchanges if not e.error]
    chosen = random.Random(options.seed).sample(good, min(options.verify, len(good)))
    differing = []
    for number, exchange in enumerate(chosen):
        again = ask(options.verify_url or load.url, exchange.messages, options, cache_prompt=False)
        if again.error or again.text != exchange.text:
            differing.append({"messages": len(exchange.messages), "text": exchange.text, "again": again.error or again.text})
        if number % 10 == 9:
            say(f"{load.url}: {number + 1} of {len(chosen)} asked again, {len(differing)} differ")
    return {"verified": len(chosen), "differing": len(differing), "first_difference": differing[0] if differing else None}


def first_token(url: str, options) -> dict:
    """Medians of a system prompt that the server has never seen, and of the same again."""
    new, again, cached = [], [], 0
    for i in range(options.first_token):
        messages = [{"role": "system", "content": system_prompt(options.system_tokens, f"{random.random()} ")},
                    {"role": "user", "content": question(0, i)}]
        new.append(ask(url, messages, options).first_token_s)
        exchange = ask(url, messages, options)
        again.append(exchange.first_token_s)
        cached = exchange.cached_tokens
    return {"first_token_new_s": statistics.median(new), "first_token_again_s": statistics.median(again),
            "first_token_cached_tokens": cached}


def print_table(rows: list[dict], options) -> None:
    last = statistics.median(r["tokens_per_s"] for r in rows if r["url"] == rows[-1]["url"])
    print(f"{options.conversations} conversations, {options.turns} turns of {options.max_tokens} tokens, greedy")
    print(render(["server", "errors", "answers", "seconds", "CPU seconds", "tokens/s", "ratio", "prompt tokens/s", "cached", "first token p50",
                  "p99", "MiB resident: first", "half", "max", "last"],
                 [[r["url"], f"{r['errors']}", f"{r['requests']}", f"{r['seconds']:.0f}", f"{r['cpu_seconds']:.0f}",
                   f"{r['tokens_per_s']:.1f}",
                   f"{r['tokens_per_s'] / last:.2f}" if last else "–", f"{r['prompt_tokens_per_s']:.0f}",
                   f"{100 * r['cached_tokens'] / max(r['prompt_tokens'], 1):.0f} %", f"{r['first_token_p50_s']:.2f} s",
                   f"{r['first_token_p99_s']:.2f} s",
                   *(f"{r['resident_' + when] / 2**20:.0f}" for when in ("first", "half", "max", "last"))] for r in rows]))
    for r in rows:
        if r["errors"]:
            print(f"{r['url']}: {r['first_error']}")
        if "verified" in r:
            print(f"{r['url']}: {r['verified']} asked again alone, {r['differing']} differ")
        if "first_token_new_s" in r:
            print(f"{r['url']}: first token of {options.system_tokens} tokens on an idle server: new {r['first_token_new_s']:.3f} s, "
                  f"again {r['first_token_again_s']:.3f} s, ratio {r['first_token_again_s'] / r['first_token_new_s']:.3f}")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="+", help="servers, such as http://localhost:8080")
    parser.add_argument("--conversations", type=int, default=64, help="at once (default: 64)")
    parser.add_argument("--turns", type=int, default=20, help="of each (default: 20)")
    parser.add_argument("--system-tokens", type=int, default=1000, help="of the system prompt, about (default: 1000)")
    parser.add_argument("--max-tokens", type=int, default=32, help="of an answer (default: 32)")
    parser.add_argument("--ignore-eos", action="store_true", help="answers never end before: the same work for all servers")
    parser.add_argument("--seconds", type=float, default=900, help="no new turn begins later (default: 900)")
    parser.add_argument("--rounds", type=int, default=1, help="times each server in turn (default: 1)")
    parser.add_argument("--pid", type=int, action="append", default=[], help="process of a server, in their order: its memory")
    parser.add_argument("--verify", type=int, default=0, metavar="N", help="requests to ask again")
    parser.add_argument("--verify-url", metavar="URL", help="of another, idle server (default: the same one)")
    parser.add_argument("--first-token", type=int, default=0, metavar="N", help="prompts to ask twice, before the load")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--timeout", type=float, default=600, help="seconds of silence that are an error (default: 600)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of --verify")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all figures as JSON")
    options = parser.parse_args(arguments)
    if len(options.pid) > len(options.url):
        parser.error(f"--pid: {len(options.pid)} given, {len(options.url)} servers")
    return options


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    pids = dict(zip(options.url, options.pid))
    rows = []
    for number in range(options.rounds):
        for url in options.url:
            say(f"{url}, round {number + 1} of {options.rounds}")
            idle = first_token(url, options) if options.first_token else {}
            load = Load(url, pids.get(url), options)
            row = load.run() | idle
            rows.append(row | (verify(load, options) if options.verify else {}))
    print_table(rows, options)
    if options.json:
        options.json.write_text(json.dumps({"options": vars(options) | {"json": None}, "rows": rows}, indent=2) + "\n")
    return 1 if any(r["errors"] or r.get("differing") for r in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("serve_load: interrupted")

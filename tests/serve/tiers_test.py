#!/usr/bin/env python3
"""The real server with a disk cache and a Redis: killed at random moments, and with everything behind it failing.

    tiers_test.py PROGRAM [KILLS]

Answers are greedy and must be those of a server that shares nothing, whatever happened before. Needs redis-server for
the tests about Redis, and skips them visibly without it.
"""

import http.client
import itertools
import json
import os
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

PROGRAM = sys.argv.pop(1)
KILLS = int(sys.argv.pop(1)) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 3
SENTENCE = "The old house stood at the end of the lane, and nobody had lived in it for years. "
PROMPTS = [f"Story {i}. " + SENTENCE * (4 + i % 3) for i in range(6)]


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    """A process of `varve serve` on a free port. Pages of prompts alone are kept: answers are then the same bit for bit."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", "--cache-bytes", "128MiB", "--no-reuse-generated", *arguments],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"on http://([0-9.]+):(\d+)", line):
                self.address = f"http://{found[1]}:{found[2]}"
                break
        else:
            raise RuntimeError("the server ended: " + "".join(lines))
        self.reader = threading.Thread(target=self.process.stderr.read, daemon=True)
        self.reader.start()

    def ask(self, prompt, timeout=120, key=""):
        """The answer, and how many tokens of the prompt were not computed."""
        body = json.dumps({"prompt": prompt, "max_tokens": 12, "temperature": 0}).encode()
        headers = {"Content-Type": "application/json", "X-Api-Key": key}
        request = urllib.request.Request(self.address + "/v1/completions", body, headers)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            document = json.load(answer)
        self.queue_ms = document["timings"]["queue_ms"]
        return document["choices"][0]["text"], document["usage"]["prompt_tokens_details"]["cached_tokens"]

    def metrics(self, pattern, key=""):
        """All values whose names match."""
        request = urllib.request.Request(self.address + "/metrics", headers={"X-Api-Key": key})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return {name: float(value) for name, value in re.findall(r"^(\S+) (\S+)$", answer.read().decode(), re.M)
                    if re.search(pattern, name)}

    def metric(self, name):
        with urllib.request.urlopen(self.address + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()


class Redis:
    def __init__(self, port=None):
        self.port = port or free_port()
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                                         "--logfile", os.devnull])
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.1).close()
                break
            except OSError:
                time.sleep(0.02)

    def command(self, text):
        with socket.create_connection(("127.0.0.1", self.port), 5) as link:
            link.sendall(text.encode() + b"\r\n")
            return link.recv(1 << 16)

    def url(self):
        return f"redis://127.0.0.1:{self.port}?timeout=300"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class SlowLink:
    """A proxy to a port of this machine; whatever comes back comes late."""

    def __init__(self, port, seconds):
        self.target, self.seconds = port, seconds
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near = self.listener.accept()[0]
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.target))
            for ends, seconds in (((near, far), 0), ((far, near), self.seconds)):
                late = queue.Queue()
                threading.Thread(target=self.read, args=(ends[0], late), daemon=True).start()
                threading.Thread(target=self.write, args=(ends[1], late, seconds), daemon=True).start()

    @staticmethod
    def read(link, late):
        try:
            while data := link.recv(1 << 16):
                late.put((time.monotonic(), data))
        except OSError:
            pass
        late.put((0, b""))

    @staticmethod
    def write(link, late, seconds):
        try:
            while (item := late.get())[1]:
                time.sleep(max(item[0] + seconds - time.monotonic(), 0))
                link.sendall(item[1])
        except OSError:
            pass
        link.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


@unittest.skipUnless(shutil.which("redis-server"), "redis-server is not installed")
class SharedRedis(unittest.TestCase):
    PROMPT = "One story. " + SENTENCE * 60

    @classmethod
    def setUpClass(cls):
        cls.alone = cls.enterClassContext(Server("--no-prefix-cache"))

    def check(self, server, prompt, **fields):
        text, cached = server.ask(prompt, **fields)
        self.assertEqual(text, self.alone.ask(prompt)[0])
        return cached

    def test_the_second_and_third_server_compute_no_page_that_the_first_has(self):
        with Redis() as redis, Server("--redis", redis.url()) as first:
            self.assertEqual(self.check(first, self.PROMPT), 0)
            whole = self.check(first, self.PROMPT)
            self.assertGreater(whole, 1000)
            time.sleep(0.5)  # written behind
            with Server("--redis", redis.url()) as second, Server("--redis", redis.url()) as third:
                self.assertEqual(self.check(second, self.PROMPT), whole)
                self.assertEqual(self.check(third, self.PROMPT), whole)

    def test_nobody_waits_for_a_redis_that_is_half_a_second_away(self):
        with Redis() as redis, Server("--redis", redis.url()) as first, SlowLink(redis.port, 0.5) as link:
            for prompt in PROMPTS:
                self.check(first, prompt)
            time.sleep(0.5)  # written behind
            with Server("--redis", f"redis://127.0.0.1:{link.port}?timeout=3000") as slow:
                self.check(slow, "To know how fast it computes. " + SENTENCE * 3)
                for prompt in PROMPTS:
                    self.check(slow, prompt)
                    self.assertLess(slow.queue_ms, 450)
                late = slow.metrics('pages_late_total|pages_skipped_total')
                self.assertGreater(sum(late.values()), 0, late)

    def test_a_full_redis_costs_hits(self):
        with Redis() as redis:
            redis.command("CONFIG SET maxmemory 2mb")
            redis.command("CONFIG SET maxmemory-policy noeviction")
            with Server("--redis", redis.url()) as server:
                for prompt in PROMPTS:
                    self.check(server, prompt)
                time.sleep(0.5)  # written behind
                self.assertGreater(server.metric('varve_tier_pages_dropped_total{tier="redis"}'), 0)
                for prompt in PROMPTS:
                    self.check(server, prompt)

    def test_what_another_tenant_has_asked_looks_like_what_nobody_has(self):
        """The same hits (none) and the same tokens computed: so the same time, as far as it depends on pages."""
        hits = "prefix_page_hits_total|tier_page_hits|pages_imported|prompt_tokens_cached_total"
        with Redis() as redis, tempfile.TemporaryDirectory() as folder, \
                Server("--redis", redis.url(), "--disk-cache", folder, "--api-key", "one", "--api-key", "two") as server:
            def computed_and_hits(prompt, key):
                before = server.metrics(f"llamacpp:prompt_tokens_total|{hits}", key)
                server.ask(prompt, key=key)
                after = server.metrics(f"llamacpp:prompt_tokens_total|{hits}", key)
                difference = {name: after[name] - before[name] for name in after}
                return difference.pop("llamacpp:prompt_tokens_total"), difference

            nobodys, _ = computed_and_hits(self.PROMPT, "one")
            own, own_hits = computed_and_hits(self.PROMPT, "one")
            time.sleep(0.5)  # written behind
            self.assertLess(own, nobodys)
            self.assertGreater(sum(own_hits.values()), 0)
            foreign, foreign_hits = computed_and_hits(self.PROMPT, "two")
            self.assertEqual(foreign, nobodys)
            self.assertEqual(set(foreign_hits.values()), {0.0}, foreign_hits)
            self.assertEqual(len(foreign_hits), 5)


class Tiers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.alone = cls.enterClassContext(Server("--no-prefix-cache"))
        cls.known = {}

    @classmethod
    def expected(cls, prompt):
        if prompt not in cls.known:
            cls.known[prompt] = cls.alone.ask(prompt)[0]
        return cls.known[prompt]

    def check_all(self, server, prompts=PROMPTS):
        """Asks everything; how many tokens were not computed."""
        cached = 0
        for prompt in prompts:
            text, tokens = server.ask(prompt)
            self.assertEqual(text, self.expected(prompt))
            cached += tokens
        return cached

    def test_kills_cost_no_page_that_was_written_and_no_right_answer(self):
        rng = random.Random(KILLS)
        with tempfile.TemporaryDirectory() as folder:
            arguments = ["--disk-cache", folder, "--disk-bytes", "512MiB"]
            with Server(*arguments) as server:
                self.check_all(server)
                # Asked again: what every page gives that can be shared.
                full = self.check_all(server)
                server.end()
            for kill in range(KILLS):
                answers = []
                with Server(*arguments) as server:
                    self.assertGreater(self.check_all(server), 0.9 * full)
                    threads = [threading.Thread(target=self.ask_until_killed, args=(server, f"{kill}-{i}", answers))
                               for i in range(3)]
                    for thread in threads:
                        thread.start()
                    time.sleep(rng.uniform(0, 1))
                    server.end(signal.SIGKILL)
                    for thread in threads:
                        thread.join()
                for prompt, text in answers:
                    self.assertEqual(text, self.expected(prompt))
                size = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
                self.assertLessEqual(size, 512 << 20)

    @staticmethod
    def ask_until_killed(server, name, answers):
        """Something new first, so that pages are being written, then what is there."""
        prompts = itertools.chain([f"New {name}. " + SENTENCE * 4], itertools.cycle(PROMPTS))
        for prompt in prompts:
            try:
                text, _ = server.ask(prompt)
            except (OSError, ValueError, http.client.HTTPException):  # killed, with the answer under way
                return
            answers.append((prompt, text))

    @unittest.skipUnless(shutil.which("redis-server"), "redis-server is not installed")
    def test_servers_share_a_redis_and_live_through_its_failures(self):
        with Redis() as redis, Server("--redis", redis.url()) as first:
            self.check_all(first)
            time.sleep(0.5)  # written behind
            with Server("--redis", redis.url()) as second, Server("--redis", redis.url()) as third:
                self.assertGreater(self.check_all(second), 0)
                self.assertGreater(second.metric("varve_tier_pages_imported_total"), 5)
                # Values that were changed are never used.
                for key in re.findall(rb"varve:\S+", redis.command("KEYS *"))[::2]:
                    redis.command(f"SETRANGE {key.decode()} 3000 damaged")
                self.check_all(third)
                self.assertGreater(third.metric('varve_tier_pages_damaged_total{tier="redis"}'), 0)
            redis.command("FLUSHALL")
            with Server("--redis", redis.url()) as fourth:
                self.check_all(fourth, PROMPTS[:2])
                redis.process.send_signal(signal.SIGSTOP)
                begin = time.monotonic()
                self.check_all(fourth, PROMPTS[2:4])
                paused = time.monotonic() - begin
                redis.process.send_signal(signal.SIGCONT)
                redis.process.kill()
                redis.process.wait()
                begin = time.monotonic()
                self.check_all(fourth, PROMPTS[4:])
                self.assertLess(paused, 10 * (time.monotonic() - begin) + 2)
            with Server("--redis", redis.url()) as without:
                self.check_all(without, PROMPTS[:2])

    def test_a_disk_without_room_costs_hits(self):
        with tempfile.TemporaryDirectory() as folder:
            with Server("--disk-cache", folder, "--disk-bytes", "64KiB") as server:
                self.check_all(server)
                time.sleep(0.5)  # written behind
                self.assertGreater(server.metric('varve_tier_pages_dropped_total{tier="disk"}'), 0)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Clients that send what is no request, send it slowly, or go away: others are answered, and nothing is left behind.

    hostile_clients_test.py PROGRAM
"""

import contextlib
import gzip
import json
import os
import random
import socket
import threading
import time
import unittest

from server_test import STORY, Server

BODY = json.dumps({"prompt": "The old house", "n_predict": 4, "temperature": 0}).encode()
HEAD = b"POST /completion HTTP/1.1\r\nHost: x\r\n"
REQUEST = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
LAST = REQUEST.replace(b"Host", b"Connection: close\r\nHost")
MIB = 1 << 20


class HostileClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--slots", "4", "--max-connections", "40")
        cls.expected = cls.ask()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    @classmethod
    def ask(cls):
        return cls.server.post("/completion", json.loads(BODY))["content"]

    def setUp(self):
        self.files = self.open_files()

    def tearDown(self):
        """All is as before: answers, slots, open files."""
        self.assertEqual(self.ask(), self.expected)
        self.await_that(lambda: self.server.slots_busy() == 0, "slots are busy")
        self.await_that(lambda: self.open_files() <= self.files, "files stay open")

    def await_that(self, holds, message, seconds=20):
        deadline = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), deadline, message)
            time.sleep(0.1)

    def open_files(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def most_resident(self):
        """Bytes that it has ever held."""
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))

    def connect(self, seconds=60):
        return socket.create_connection((self.server.host, self.server.port), seconds)

    def send(self, data, is_all=True, seconds=60):
        """What comes back until the server ends. A client that says that this is all wants no answer any more."""
        answer = b""
        with self.connect(seconds) as client, contextlib.suppress(OSError):
            client.sendall(data)
            if is_all:
                client.shutdown(socket.SHUT_WR)
            while more := client.recv(1 << 16):
                answer += more
        return answer

    def status(self, data, is_all=True, seconds=60):
        return self.send(data, is_all, seconds).split(b"\r\n")[0].split(b" ")[1:2]

    def test_what_is_no_request_is_refused(self):
        self.assertEqual(self.status(LAST, False), [b"200"])
        close = HEAD + b"Connection: close\r\n"
        for garbage in (close + b"\r\n", close + b"Content-Length: 5\r\n\r\n" + BODY,
                        close + b"Content-Length: ten\r\n\r\n" + BODY,
                        close + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nno\r\n0\r\n\r\n",
                        close + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n{}\r\n0\r\n\r\n", close + b"X\x00Y: \xff\r\n\r\n",
                        LAST.replace(b"HTTP/1.1", b"HTTP/9.9"), LAST.replace(b"POST", b"BREW"),
                        LAST.replace(b"/completion", b"/" + b"%00" * 9000)):
            self.assertRegex(b"".join(self.status(garbage, False, 2)), rb"^(4\d\d)?$", garbage[:80])

    def test_what_never_ends_is_forgotten_with_its_client(self):
        for unfinished in (REQUEST[:20], HEAD, HEAD + b"Content-Length: 9999\r\n\r\n" + BODY,
                           HEAD + b"Content-Length: -1\r\n\r\n" + BODY,
                           HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
                           HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
                           HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{"):
            self.assertNotEqual(self.status(unfinished), [b"200"], unfinished[:80])

    def test_a_body_that_nobody_reads_is_no_request(self):
        """The connection ends with the refusal: what was sent as a body is not taken for what comes next."""
        hidden = b"GET /health HTTP/1.1\r\n\r\n"
        for head, status in ((b"OPTIONS / HTTP/1.1\r\nHost: x\r\n", b"200"), (b"GET /health HTTP/1.1\r\nHost: x\r\n", b"200"),
                             (HEAD + b"Content-Encoding: br\r\n", b"415")):
            answer = self.send(head + b"Content-Length: %d\r\n\r\n" % len(hidden) + hidden, False)
            self.assertEqual(answer.count(b"HTTP/1.1 "), 1, answer)
            self.assertTrue(answer.startswith(b"HTTP/1.1 " + status), answer)
            self.assertIn(b"Connection: close", answer)

    def test_chunks_that_are_right_are_taken(self):
        chunked = b"".join(b"%x\r\n%c\r\n" % (1, byte) for byte in BODY) + b"0\r\n\r\n"
        head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(self.status(head + chunked, False), [b"200"])

    def test_requests_in_one_packet_are_answered_one_by_one(self):
        self.assertEqual(self.send(REQUEST * 2 + LAST, False).count(b"HTTP/1.1 200"), 3)

    def test_endless_headers_and_bodies_take_no_memory(self):
        before = self.most_resident()
        packed = gzip.compress(bytes(200 * MIB))
        endless = ((HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed), packed),
                   (b"GET / HTTP/1.1\r\n\n", b"X: A\r\n" * (MIB // 6)), (HEAD + b"X: ", b"A" * MIB), (HEAD, b"X: A\r\n" * (MIB // 6)), (b"", b"A" * MIB),
                   (HEAD + b"Content-Length: 999999999\r\n\r\n", b"A" * MIB),
                   (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + b"A" * MIB + b"\r\n"))
        for begin, more in endless:
            with self.connect() as client, contextlib.suppress(OSError):
                client.sendall(begin)
                for _ in range(100):
                    client.sendall(more)
            self.assertLess(self.most_resident() - before, 60 * MIB, begin + more[:20])

    def test_mutated_requests_do_no_harm(self):
        rng = random.Random(7)
        for _ in range(1000):
            data = bytearray(REQUEST)
            for _ in range(rng.randint(1, 8)):
                at, kind = rng.randrange(len(data)), rng.randrange(4)
                if kind == 0:
                    data[at] = rng.randrange(256)
                elif kind == 1:
                    del data[at:at + rng.randint(1, 20)]
                elif kind == 2:
                    data[at:at] = rng.randbytes(rng.randint(1, 20))
                else:
                    data[at:at] = data[rng.randrange(len(data)):][:rng.randint(1, 60)]
            self.send(bytes(data))

    def test_clients_that_send_slowly_hold_nobody_up(self):
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(self.connect()) for _ in range(20)]
            for byte in REQUEST[:60]:
                for client in slow[:10]:
                    client.sendall(bytes([byte]))
            for client in slow[10:]:
                client.sendall(REQUEST[:-3])
            self.assertEqual([self.ask() for _ in range(3)], [self.expected] * 3)
            for client in slow[10:]:
                client.sendall(REQUEST[-3:])
                self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 200"))

    def test_clients_that_vanish_in_the_middle_of_an_answer_are_forgotten(self):
        body = json.dumps({"prompt": STORY, "n_predict": 1500, "ignore_eos": True, "stream": True}).encode()
        request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body

        def vanish():
            with self.connect() as client:
                client.sendall(request)
                client.recv(100)

        threads = [threading.Thread(target=vanish) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    unittest.main()

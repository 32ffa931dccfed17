#!/usr/bin/env python3
"""The real server, asked over HTTP as clients do: `varve serve` with the embedded model.

    server_test.py PROGRAM

Needs nothing but the standard library. Where the `openai` package is installed it is tried, too.
"""

import http.client
import io
import json
import math
import os
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
import urllib.error
import urllib.request
import wave

try:
    import openai
except ImportError:
    openai = None

PROGRAM = sys.argv.pop(1)
LOAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools/serve_load.py")
STORY = "The old house stood at the end of the lane, and nobody had lived in it for years. " * 12


class Server:
    """A process of `varve serve` on a free port, killed at the end."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--port", "0", "--cache-bytes", "256MiB", "--log", "json", *arguments],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.lines = []
        while True:
            line = self.process.stderr.readline()
            if not line:
                raise RuntimeError("the server ended: " + "".join(self.lines))
            self.lines.append(line)
            found = re.search(r"on http://([0-9.]+):(\d+)", line)
            if found:
                self.host, self.port = found[1], int(found[2])
                break
        # Nobody must wait for a full pipe.
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def url(self, path):
        return f"http://{self.host}:{self.port}{path}"

    def get(self, path, key=None):
        request = urllib.request.Request(self.url(path), headers={"Authorization": "Bearer " + key} if key else {})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def post(self, path, body, key=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": "Bearer " + key} if key else {})
        with urllib.request.urlopen(urllib.request.Request(self.url(path), data, headers), timeout=120) as answer:
            return json.load(answer)

    def error(self, path, body, key=None):
        """(status, error object) of a request that must be refused."""
        try:
            self.post(path, body, key)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]
        raise AssertionError(f"{path}: not refused")

    def stream(self, path, body):
        """The objects of a stream; the last is the text "[DONE]" where there was one."""
        data = json.dumps(body | {"stream": True}).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url(path), data), timeout=120) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream", answer.headers
            for line in answer:
                if line.startswith(b"data: "):
                    text = line[6:].strip().decode()
                    yield text if text == "[DONE]" else json.loads(text)

    def slots_busy(self):
        return sum(slot["is_processing"] for slot in json.loads(self.get("/slots")))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--slots", "4")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def complete(self, prompt, **fields):
        return self.server.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 12} | fields)

    def test_health_models_and_props(self):
        self.assertEqual(json.loads(self.server.get("/health")), {"status": "ok"})
        models = json.loads(self.server.get("/v1/models"))
        self.assertEqual(models["data"][0]["object"], "model")
        props = json.loads(self.server.get("/props"))
        self.assertEqual(props["total_slots"], 4)
        self.assertEqual(props["prefix_cache"], "on")

    def test_the_same_greedy_request_has_the_same_answer_and_reuses_pages(self):
        first = self.complete(STORY + "First.")
        second = self.complete(STORY + "First.")
        self.assertEqual(first["choices"][0]["text"], second["choices"][0]["text"])
        usage = second["usage"]
        tokens = usage["prompt_tokens"]
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], (tokens - 1) // 64 * 64)
        self.assertEqual(usage["total_tokens"], tokens + 12)
        self.assertEqual(second["choices"][0]["finish_reason"], "length")

    def test_a_stream_says_what_the_whole_answer_says(self):
        body = {"prompt": STORY, "temperature": 0, "max_tokens": 20}
        whole = self.server.post("/v1/completions", body)
        chunks = list(self.server.stream("/v1/completions", body | {"stream_options": {"include_usage": True}}))
        self.assertEqual(chunks[-1], "[DONE]")
        text = "".join(c["choices"][0]["text"] for c in chunks[:-1] if c["choices"])
        self.assertEqual(text, whole["choices"][0]["text"])
        self.assertEqual(chunks[-2]["usage"]["completion_tokens"], 20)
        self.assertEqual([c["choices"][0]["finish_reason"] for c in chunks[:-1] if c["choices"]][-1], "length")

    def test_chat(self):
        body = {"messages": [{"role": "user", "content": "The old house"}], "temperature": 0, "max_tokens": 8}
        answer = self.server.post("/v1/chat/completions", body | {"logprobs": True, "top_logprobs": 3})
        choice = answer["choices"][0]
        self.assertEqual(choice["message"]["role"], "assistant")
        content = choice["logprobs"]["content"]
        self.assertEqual(len(content), 8)
        self.assertEqual(len(content[0]["top_logprobs"]), 3)
        # Greedy: the drawn token is the best one.
        self.assertEqual(content[0]["token"], content[0]["top_logprobs"][0]["token"])
        self.assertLessEqual(content[0]["logprob"], 0)
        chunks = list(self.server.stream("/v1/chat/completions", body))
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1])
        self.assertEqual(text, choice["message"]["content"])

    def test_stop_texts_seeds_and_choices(self):
        whole = self.complete(STORY, max_tokens=40)["choices"][0]["text"]
        stop = whole.split()[3]
        cut = self.complete(STORY, max_tokens=40, stop=[stop])["choices"][0]
        self.assertEqual(cut["text"], whole[: whole.index(stop)])
        self.assertEqual(cut["finish_reason"], "stop")
        several = self.complete(STORY, temperature=1.2, seed=5, n=3)
        self.assertEqual([c["index"] for c in several["choices"]], [0, 1, 2])
        again = self.complete(STORY, temperature=1.2, seed=5, n=3)
        self.assertEqual(several["choices"], again["choices"])
        self.assertGreater(len({c["text"] for c in several["choices"]}), 1)

    def test_llama_servers_fields(self):
        answer = self.server.post("/completion", {"prompt": STORY, "n_predict": 5, "temperature": 0,
                                                  "return_tokens": True, "n_probs": 2})
        self.assertEqual(answer["tokens_predicted"], 5)
        self.assertEqual(len(answer["tokens"]), 5)
        self.assertEqual(answer["stop_type"], "limit")
        self.assertEqual(len(answer["completion_probabilities"]), 5)
        timings = answer["timings"]
        self.assertEqual(timings["cache_n"] + timings["prompt_n"], answer["tokens_evaluated"])
        chunks = list(self.server.stream("/completion", {"prompt": "The", "n_predict": 3}))
        self.assertTrue(chunks[-1]["stop"])
        self.assertFalse(chunks[0]["stop"])

    def test_tokens_there_and_back(self):
        tokens = self.server.post("/tokenize", {"content": "The old house"})["tokens"]
        self.assertEqual(self.server.post("/detokenize", {"tokens": tokens})["content"].strip(), "The old house")
        pieces = self.server.post("/tokenize", {"content": "The old", "with_pieces": True})["tokens"]
        self.assertEqual({"id", "piece"}, set(pieces[0]))

    def test_errors_name_field_value_and_limit(self):
        status, error = self.server.error("/v1/completions", {"prompt": "a", "temperature": 1000})
        self.assertEqual((status, error["param"]), (400, "temperature"))
        self.assertEqual(error["message"], "temperature: 1000 is not in 0 … 100")
        self.assertEqual(self.server.error("/v1/completions", b"{nonsense")[0], 400)
        self.assertEqual(self.server.error("/v1/completions", {})[1]["message"], "prompt: missing")
        self.assertEqual(self.server.error("/v1/chat/completions", {"messages": "x"})[0], 400)
        self.assertEqual(self.server.error("/no/such/route", {})[0], 404)
        status, error = self.server.error("/completion", {"prompt": "word " * 20000})
        self.assertEqual((status, error["type"]), (400, "exceed_context_size_error"))
        self.assertEqual(self.server.error("/tokenize", b"x" * (9 << 20))[0], 413)

    def test_curls_bodies_may_be_long(self):
        """`curl -d` says that JSON is a form."""
        body = json.dumps({"prompt": STORY * 12, "temperature": 0, "max_tokens": 2}).encode()
        self.assertGreater(len(body), 8192)
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        with urllib.request.urlopen(urllib.request.Request(self.server.url("/v1/completions"), body, kind), timeout=120) as answer:
            self.assertEqual(json.load(answer)["usage"]["completion_tokens"], 2)

    def test_requests_together_are_answered_as_alone(self):
        prompts = [STORY + f"Chapter {i}. " + "It rained. " * i for i in range(10)]
        alone = [self.complete(p, cache_prompt=False)["choices"][0]["text"] for p in prompts]
        together = [None] * len(prompts)

        def ask(i):
            together[i] = self.complete(prompts[i])["choices"][0]["text"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)

    def test_a_client_that_goes_frees_its_slot(self):
        for stream in (False, True):
            body = json.dumps({"prompt": "The", "n_predict": 1800, "ignore_eos": True, "stream": stream}).encode()
            client = socket.create_connection((self.server.host, self.server.port))
            client.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            deadline = time.time() + 30
            while self.server.slots_busy() == 0:
                self.assertLess(time.time(), deadline, "never began")
                time.sleep(0.02)
            client.close()
            deadline = time.time() + 5
            while self.server.slots_busy() > 0:
                self.assertLess(time.time(), deadline, f"still generates, stream={stream}")
                time.sleep(0.05)

    def test_garbage_does_no_harm(self):
        for garbage in (b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"POST /completion HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
                        b"POST /completion HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"A" * 100000):
            client = socket.create_connection((self.server.host, self.server.port))
            try:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                client.settimeout(2)
                client.recv(4096)
            except OSError:
                pass
            client.close()
        self.assertEqual(json.loads(self.server.get("/health")), {"status": "ok"})

    def test_no_page_of_another_origin_may_read_an_answer_unless_told(self):
        def allowed(server, origin):
            link = http.client.HTTPConnection(server.host, server.port, timeout=60)
            link.request("OPTIONS", "/completion", headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
            answer = link.getresponse()
            link.close()
            self.assertEqual(answer.status, 200)
            return answer.getheader("Access-Control-Allow-Origin")

        self.assertIsNone(allowed(self.server, "http://localhost:3000"))
        server = Server("--cors-origins", "localhost,https://a.example")
        try:
            for origin in ("http://localhost:3000", "http://127.0.0.1", "https://a.example"):
                self.assertEqual(allowed(server, origin), origin)
            for origin in ("http://localhost.b.example", "https://b.example", "https://a.example.b"):
                self.assertIsNone(allowed(server, origin), origin)
        finally:
            server.stop()

    def test_metrics_have_the_names_of_three_servers(self):
        self.complete("The old house")
        text = self.server.get("/metrics")
        values = dict(re.findall(r"^([a-z_:A-Z0-9]+) ([0-9.e+-]+)$", text, re.M))
        for name in ("varve_bytes_held", "varve_prefix_page_hits_total", "llamacpp:prompt_tokens_total",
                     "llamacpp:tokens_predicted_total", "llamacpp:requests_deferred", "llamacpp:kv_cache_usage_ratio",
                     "vllm:kv_cache_usage_perc", "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"):
            self.assertIn(name, values)
        self.assertGreater(float(values["llamacpp:tokens_predicted_total"]), 0)
        self.assertLessEqual(float(values["varve_bytes_held"]), 256 << 20)

    def test_the_page_needs_nothing_from_elsewhere(self):
        page = self.server.get("/")
        self.assertIn("<title>Varve</title>", page)
        self.assertNotIn("/*js*/", page)
        self.assertNotRegex(page, r"(src|href)=")
        cache = json.loads(self.server.get("/cache"))
        self.assertLessEqual(cache["bytes_held"], cache["bytes_budget"])

    @unittest.skipIf(shutil.which("chromium") is None, "chromium is not installed")
    def test_the_page_draws_the_cache(self):
        self.complete(STORY)
        with tempfile.TemporaryDirectory() as folder:
            shown = subprocess.run(
                ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=3000",
                 "--user-data-dir=" + folder, "--dump-dom", self.server.url("/")],
                capture_output=True, text=True, timeout=120).stdout
        self.assertIn("pages of 64 tokens", shown)
        self.assertRegex(shown, r'<div class="strip[^>]*><b>idle, \d+ tokens</b><i')
        self.assertRegex(shown, r"MiB of 256 MiB")
        self.assertIn('<p id="trouble" role="alert"></p>', shown)

    @unittest.skipIf(openai is None, "the openai package is not installed")
    def test_the_openai_package(self):
        client = openai.OpenAI(base_url=self.server.url("/v1"), api_key="none")
        self.assertEqual(len(list(client.models.list())), 1)
        answer = client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": STORY}], max_tokens=6, temperature=0, logprobs=True)
        self.assertEqual(answer.usage.completion_tokens, 6)
        text = ""
        for chunk in client.chat.completions.create(
                model="any", messages=[{"role": "user", "content": STORY}], max_tokens=6, temperature=0, stream=True):
            text += chunk.choices[0].delta.content or ""
        self.assertEqual(text, answer.choices[0].message.content)
        with self.assertRaises(openai.BadRequestError) as caught:
            client.completions.create(model="any", prompt="a", max_tokens=10**9)
        self.assertEqual(caught.exception.param, "max_tokens")


class LoadTest(unittest.TestCase):
    def test_conversations_at_once_are_answered_as_alone(self):
        server = Server("--slots", "6", "--no-reuse-generated")
        try:
            with tempfile.TemporaryDirectory() as folder:
                target = os.path.join(folder, "load.json")
                done = subprocess.run(
                    [sys.executable, LOAD, server.url(""), "--conversations", "8", "--turns", "3", "--system-tokens", "300",
                     "--max-tokens", "12", "--verify", "12", "--json", target], capture_output=True, text=True, timeout=600)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                with open(target, encoding="utf-8") as file:
                    row = json.load(file)["rows"][0]
            self.assertEqual((row["requests"], row["errors"], row["verified"], row["differing"]), (24, 0, 12, 0))
            self.assertGreater(row["cached_tokens"], row["prompt_tokens"] / 2)
        finally:
            server.stop()


class KeysAndLimitsTest(unittest.TestCase):
    def setUp(self):
        self.server = Server("--api-key", "one", "--api-key", "two", "--slots", "1", "--max-waiting", "1",
                             "--max-tokens", "400")

    def tearDown(self):
        self.server.stop()

    def ask(self, key, **fields):
        body = {"prompt": STORY, "max_tokens": 4, "temperature": 0} | fields
        return self.server.post("/v1/completions", body, key)

    def test_keys_are_asked_for_and_share_no_pages(self):
        self.assertEqual(self.server.error("/v1/completions", {"prompt": "a"})[0], 401)
        self.assertEqual(self.server.error("/v1/completions", {"prompt": "a"}, "three")[1]["type"], "authentication_error")
        cached = lambda answer: answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached(self.ask("one")), 0)
        self.assertGreater(cached(self.ask("one")), 0)
        self.assertEqual(cached(self.ask("two")), 0)
        self.assertEqual(cached(self.ask("two", cache_salt="x")), 0)
        self.assertEqual(self.server.get("/health"), '{"status":"ok"}')

    def test_the_queue_has_an_end(self):
        answers = []

        def ask():
            try:
                self.ask("one", max_tokens=300, ignore_eos=True)
                answers.append(200)
            except urllib.error.HTTPError as error:
                answers.append(error.code)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        self.assertIn(503, answers)
        self.assertIn(200, answers)
        self.assertEqual(self.server.error("/v1/completions", {"prompt": "a", "max_tokens": 401}, "one")[1]["message"],
                         "max_tokens: 401 is not in -1 … 400")


class SlotFilesTest(unittest.TestCase):
    def action(self, server, action, body, slot=0, key=None):
        return server.post(f"/slots/{slot}?action={action}", body, key)

    def ask(self, server):
        answer = server.post("/completion", {"prompt": STORY, "n_predict": 6, "temperature": 0, "id_slot": 0})
        # At least one token is always computed, and only whole pages are shared.
        self.whole_pages = (answer["tokens_evaluated"] - 1) // 64 * 64
        return answer["content"], answer["timings"]["cache_n"]

    def test_a_slot_comes_back_after_a_restart_and_is_really_used(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server("--slot-save-path", folder)
            try:
                text, cached = self.ask(server)
                self.assertEqual(cached, 0)
                saved = self.action(server, "save", {"filename": "house.varve"})
                self.assertGreaterEqual(saved["n_saved"], self.whole_pages)
                self.assertEqual(saved["n_written"], os.path.getsize(os.path.join(folder, "house.varve")))
                for name in ("../x", "a/b", "", ".x"):
                    self.assertEqual(server.error("/slots/0?action=save", {"filename": name})[0], 400, name)
                self.assertEqual(server.error("/slots/99?action=save", {"filename": "x"})[0], 404)
                self.assertEqual(server.error("/slots/0?action=dance", {})[0], 400)
                self.assertGreater(self.action(server, "erase", {})["n_erased"], 0)
                self.assertEqual(self.ask(server), (text, 0))
            finally:
                server.stop()
            server = Server("--slot-save-path", folder)
            try:
                restored = self.action(server, "restore", {"filename": "house.varve"})
                self.assertEqual(restored["n_restored"], saved["n_saved"])
                self.assertEqual(self.ask(server), (text, self.whole_pages))
                with open(os.path.join(folder, "house.varve"), "rb") as file:
                    damaged = bytearray(file.read())
                damaged[len(damaged) // 2] ^= 1
                with open(os.path.join(folder, "damaged.varve"), "wb") as file:
                    file.write(damaged)
                self.assertEqual(server.error("/slots/0?action=restore", {"filename": "damaged.varve"})[0], 400)
                self.assertEqual(server.error("/slots/0?action=restore", {"filename": "none"})[0], 400)
                self.assertEqual(self.ask(server), (text, self.whole_pages))
            finally:
                server.stop()

    def test_without_a_folder_there_is_no_such_action(self):
        server = Server()
        try:
            self.assertEqual(server.error("/slots/0?action=save", {"filename": "x"})[0], 501)
        finally:
            server.stop()


def form(**fields):
    """(body, content type) of a multipart form; bytes are a file."""
    boundary, parts = "varve-test", b""
    for name, value in fields.items():
        is_file = isinstance(value, bytes)
        head = f'Content-Disposition: form-data; name="{name}"' + ('; filename="a.wav"' if is_file else "")
        parts += f"--{boundary}\r\n{head}\r\n\r\n".encode() + (value if is_file else value.encode()) + b"\r\n"
    return parts + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def send_form(server, path="/v1/audio/transcriptions", **fields):
    """(status, text) of a form."""
    body, kind = form(**fields)
    request = urllib.request.Request(server.url(path), body, {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def spoken():
    """A sound: the recording that VARVE_SPEECH_FILE names, or a second of a hum."""
    if os.environ.get("VARVE_SPEECH_FILE"):
        with open(os.environ["VARVE_SPEECH_FILE"], "rb") as file:
            return file.read()
    data = io.BytesIO()
    with wave.open(data, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16000)
        sound.writeframes(b"".join(int(3000 * math.sin(i / 20)).to_bytes(2, "little", signed=True) for i in range(16000)))
    return data.getvalue()


class IdleTest(unittest.TestCase):
    def wait(self, server, name, value):
        for _ in range(200):
            cache = json.loads(server.get("/cache"))
            if cache[name] >= value:
                return cache
            time.sleep(0.05)
        self.fail(f"{name} is {cache[name]}, not {value}")

    def test_a_conversation_rests_spills_and_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server("--kv", "t4,idle_k=t3,idle_v=t2,exact=0", "--idle", "0.5", "--spill", "2", "--disk-cache",
                            folder, "--tier-writes", "leaving")
            try:
                server.post("/completion", {"prompt": STORY, "n_predict": 1})
                before = json.loads(server.get("/cache"))
                pages = sum(run["pages"] for run in before["conversations"][0]["runs"])
                at_rest = self.wait(server, "pages_rested", pages)
                self.assertEqual({run["state"] for run in at_rest["conversations"][0]["runs"]}, {"idle"})
                self.assertLess(at_rest["bytes_held"], before["bytes_held"])
                gone = self.wait(server, "pages_spilled", pages)
                self.assertEqual(gone["conversations"], [])
                second = server.post("/completion", {"prompt": STORY + "And then it burned.", "n_predict": 1})
                self.assertGreaterEqual(second["timings"]["cache_n"], 64 * (pages - 1))
            finally:
                server.stop()


class SpeechTest(unittest.TestCase):
    def test_without_a_model_it_says_how_to_have_one(self):
        server = Server()
        try:
            status, text = send_form(server, file=spoken())
            self.assertEqual(status, 501)
            self.assertIn("--speech", json.loads(text)["error"]["message"])
        finally:
            server.stop()

    def test_forms_are_answered_as_they_ask(self):
        try:
            server = Server("--speech", "whisper-tiny.en", "--speech-kv", "q8_0")
        except RuntimeError:
            self.skipTest("whisper-tiny.en is not here: ./dev models whisper-tiny.en")
        try:
            self.assertEqual(len(json.loads(server.get("/v1/models"))["data"]), 2)
            status, text = send_form(server, file=spoken(), language="en")
            self.assertEqual(status, 200, text)
            said = json.loads(text)["text"]
            print(f"heard: {said!r}", file=sys.stderr)
            status, text = send_form(server, file=spoken(), response_format="verbose_json",
                                     **{"timestamp_granularities[]": "word"})
            verbose = json.loads(text)
            self.assertEqual(verbose["text"], said)
            self.assertIn("words", verbose)
            self.assertNotIn("words", verbose["segments"][0] if verbose["segments"] else {})
            status, text = send_form(server, file=spoken(), response_format="vtt")
            self.assertTrue(text.startswith("WEBVTT"), text)
            for fields, param in (({"file": b"no sound"}, "file"), ({"language": "en"}, "file"),
                                  ({"file": spoken(), "temperature": "2"}, "temperature"),
                                  ({"file": spoken(), "response_format": "pdf"}, "response_format")):
                status, text = send_form(server, **fields)
                self.assertEqual((status, json.loads(text)["error"]["param"]), (400, param), text)
            status, text = send_form(server, file=spoken(), language="klingon")
            self.assertEqual(status, 400, text)
        finally:
            server.stop()


class StopTest(unittest.TestCase):
    def test_sigterm_lets_an_answer_end(self):
        server = Server()
        try:
            answers = []
            thread = threading.Thread(target=lambda: answers.append(
                server.post("/completion", {"prompt": "The", "n_predict": 150, "ignore_eos": True})))
            thread.start()
            while server.slots_busy() == 0:
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            thread.join()
            self.assertEqual(answers[0]["tokens_predicted"], 150)
            self.assertEqual(server.process.wait(timeout=30), 128 + signal.SIGTERM)
        finally:
            server.stop()

    def test_it_checks_itself(self):
        done = subprocess.run([PROGRAM, "serve", "--check", "--log", "off"], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("health: ok", done.stdout)

    def test_a_port_that_is_taken_is_named(self):
        server = Server()
        try:
            done = subprocess.run([PROGRAM, "serve", "--port", str(server.port)], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 6)
            self.assertIn(f"port {server.port}", done.stderr)
        finally:
            server.stop()


if __name__ == "__main__":
    unittest.main()

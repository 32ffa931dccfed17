"""serve_load.py against a made-up server."""

import contextlib
import http.server
import io
import json
import sys
import tempfile
import threading
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
import serve_load  # noqa: E402


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the number of messages; `lie` changes what is asked again, `refuse` the third turn."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        turns = len(body["messages"]) // 2
        if self.server.refuse and turns == 3:
            self.send_error(503)
            return
        self.send_response(200)
        self.end_headers()
        text = f"answer {turns}" + (" lie" if self.server.lie and not body.get("cache_prompt", True) else "")
        usage = {"prompt_tokens": 100 * turns, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 50}}
        for chunk in ({"choices": [{"delta": {"role": "assistant"}}]}, {"choices": [{"delta": {"content": text}}]},
                      {"choices": [], "usage": usage}):
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


class ServeLoad(unittest.TestCase):
    def run_main(self, *arguments, lie=False, refuse=False):
        """(exit code, table, rows, bodies) of two conversations of three turns."""
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, tempfile.TemporaryDirectory() as folder:
            server.lie, server.refuse, server.bodies = lie, refuse, []
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            target = Path(folder, "out.json")
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
                code = serve_load.main([f"http://127.0.0.1:{server.server_port}", "--conversations", "2", "--turns", "3",
                                        "--json", str(target), *arguments])
            server.shutdown()
            return code, out.getvalue(), json.loads(target.read_text())["rows"], server.bodies

    def test_conversations_grow_by_what_was_answered(self):
        code, _, rows, bodies = self.run_main("--pid", "1")
        self.assertEqual((code, rows[0]["requests"], rows[0]["tokens"], rows[0]["prompt_tokens"]), (0, 6, 42, 1200))
        self.assertEqual(rows[0]["cached_tokens"], 300)
        self.assertGreater(rows[0]["resident_max"], 0)
        last = max(bodies, key=lambda body: len(body["messages"]))["messages"]
        self.assertEqual([m["content"] for m in last if m["role"] == "assistant"], ["answer 1", "answer 2"])
        self.assertEqual(len({body["messages"][0]["content"] for body in bodies}), 1)

    def test_an_answer_that_differs_fails(self):
        code, out, rows, _ = self.run_main("--verify", "4")
        self.assertEqual((code, rows[0]["verified"], rows[0]["differing"]), (0, 4, 0))
        code, out, rows, _ = self.run_main("--verify", "4", lie=True)
        self.assertEqual((code, rows[0]["differing"]), (1, 4))
        self.assertIn("4 asked again alone, 4 differ", out)

    def test_an_error_is_counted_and_fails(self):
        code, out, rows, _ = self.run_main(refuse=True)
        self.assertEqual((code, rows[0]["errors"], rows[0]["requests"]), (1, 2, 6))
        self.assertIn("status 503", out)

    def test_prompts_of_an_idle_server_are_new_and_come_twice(self):
        _, out, rows, bodies = self.run_main("--first-token", "2", "--turns", "0")
        prompts = [body["messages"][0]["content"] for body in bodies]
        self.assertEqual((len(prompts), len(set(prompts))), (4, 2))
        self.assertGreater(rows[0]["first_token_new_s"], 0)


if __name__ == "__main__":
    unittest.main()

"""The embedded engine behind HTTP, as an OpenAI-compatible completions server: every answer is computed when it is asked for."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from edge0verify.engine import Engine, generate
from edge0verify.model import Model, decode, encode


class Served:
    """`with Served(model) as server:` answers under `server.url` until the block ends.

    form: 'content' names tokens by id and text, as llama.cpp does; 'completions' by text alone; 'none' gives no log-probs.
    key: what the Authorization header must hold.  fail: answer this many requests with 503 first.  give_up: answer all with 503
    after this many.
    """

    def __init__(self, model: Model, *, form: str = "content", key: str | None = None, fail: int = 0, give_up: int | None = None,
                 **options) -> None:
        self.engine, self.form, self.key, self.left, self.give_up = Engine(model, threads=2, **options), form, key, fail, give_up
        self.answered, self.lock = 0, threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    code, answer = outer.answer(self.path, self.headers.get("Authorization"), body)
                data = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    def answer(self, path: str, authorization: str | None, body: dict) -> tuple[int, dict]:
        """(HTTP status, body)."""
        if path != "/v1/completions":
            return 404, {"error": "no such path"}
        if self.key is not None and authorization != f"Bearer {self.key}":
            return 401, {"error": f"bad key {authorization}"}
        if self.left or (self.give_up is not None and self.answered >= self.give_up):
            self.left -= 1
            return 503, {"error": "busy"}
        self.answered += 1
        made = generate(self.engine, encode(body["prompt"]), max_tokens=body["max_tokens"])
        tokens = made.tokens[made.tokens < self.engine.config.bos]
        choice = {"index": 0, "text": decode(tokens).decode("utf-8", "replace"), "finish_reason": "length"}
        top = [(int(i), float(lp)) for i, lp in zip(made.first.top8_ids, made.first.top8_logprobs)][: body["logprobs"]]
        if self.form == "content":
            listed = [{"id": i, "token": chr(i), "logprob": lp} for i, lp in top]
            choice["logprobs"] = {"content": [{**listed[0], "top_logprobs": listed}]}
        elif self.form == "completions":
            choice["logprobs"] = {"top_logprobs": [{chr(i): lp for i, lp in top}]}
        return 200, {"object": "text_completion", "model": body["model"], "choices": [choice]}

    def __enter__(self) -> Served:
        self.thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(5)

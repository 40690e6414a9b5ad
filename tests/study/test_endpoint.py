"""The endpoint client against a server on this machine: right, failing, slow and malformed answers, and a key that stays secret."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from edge0verify.records.errors import InputError
from edge0verify.study.endpoint import Candidate, Endpoint, EndpointError, first_candidates

KEY = "sk-test-0123456789"
GOOD = {
    "choices": [{"text": " Paris", "finish_reason": "length", "logprobs": {"top_logprobs": [{" Rome": -2.5, " Paris": -0.25}]}}]
}


class Server:
    """Answers with a list of behaviours, one per request; the last repeats. Keeps what it was asked."""

    def __init__(self):
        self.behaviours, self.asked = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.asked.append((self.path, dict(self.headers), json.loads(body)))
                step = outer.behaviours.pop(0) if len(outer.behaviours) > 1 else outer.behaviours[0]
                step(self)

            def do_GET(self):
                outer.asked.append((self.path, dict(self.headers), None))
                self.send_error(404)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(5)


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    running = Server()
    yield running
    running.close()


def answer(content, *, code=200, headers=(), length=None):
    data = content if isinstance(content, bytes) else json.dumps(content).encode()

    def step(handler):
        handler.send_response(code)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(data) if length is None else length))
        handler.end_headers()
        handler.wfile.write(data)

    return step


def drip(handler):
    """A byte now and then, so that no single wait is long."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    try:
        for _ in range(400):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        return


def drip_headers(handler):
    try:
        for _ in range(400):
            handler.wfile.write(b"H")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        return


def silent(handler):
    time.sleep(1.0)


def hang_up(handler):
    handler.close_connection = True


def ask(server, *behaviours, **options):
    server.behaviours = list(behaviours)
    pauses = []
    endpoint = Endpoint(**{"url": server.url, "model": "m", "timeout_s": 5.0, "retries": 2, "sleep": pauses.append, **options})
    return endpoint.complete("The capital of France is", max_tokens=3), pauses


class TestAnswers:
    def test_text_and_first_token_come_back_best_first(self, server):
        found, _ = ask(server, answer(GOOD))
        assert (found.text, found.finish_reason, found.attempts) == (" Paris", "length", 1)
        assert found.first == (Candidate(" Paris", None, -0.25), Candidate(" Rome", None, -2.5))

    def test_the_request_is_greedy_and_asks_for_eight(self, server):
        ask(server, answer(GOOD))
        path, _, body = server.asked[0]
        assert path == "/v1/completions"
        assert body == {"model": "m", "prompt": "The capital of France is", "max_tokens": 3, "temperature": 0, "logprobs": 8}

    def test_the_answer_is_the_server_s_and_not_a_canned_one(self, server):
        other = {"choices": [{"text": " Lyon"}]}
        assert ask(server, answer(other))[0].text == " Lyon"
        assert ask(server, answer(other))[0].first == ()

    def test_at_most_top_candidates_are_kept(self, server):
        table = {f"t{n}": -float(n) for n in range(12)}
        found, _ = ask(server, answer({"choices": [{"text": "", "logprobs": {"top_logprobs": [table]}}]}))
        assert [candidate.token for candidate in found.first] == [f"t{n}" for n in range(8)]


class TestForms:
    def test_the_content_form_gives_ids(self):
        listed = [{"id": 7, "token": "a", "logprob": -0.5}, {"id": 3, "token": "b", "logprob": -0.1}]
        found = first_candidates({"content": [{"id": 3, "token": "b", "logprob": -0.1, "top_logprobs": listed}]})
        assert [(candidate.id, candidate.logprob) for candidate in found] == [(3, -0.1), (7, -0.5)]

    def test_tokens_named_by_id_give_ids(self):
        assert first_candidates({"top_logprobs": [{"token_id:42": -0.5}]})[0].id == 42

    @pytest.mark.parametrize("nothing", [None, {}, {"top_logprobs": None}, {"top_logprobs": []}, {"content": []}])
    def test_no_log_probs_are_no_candidates(self, nothing):
        assert first_candidates(nothing) == ()


class TestFailing:
    def test_a_busy_server_is_asked_again_with_growing_pauses(self, server):
        found, pauses = ask(server, answer({}, code=503), answer({}, code=500), answer(GOOD), backoff_s=0.5)
        assert (found.attempts, pauses) == (3, [0.5, 1.0])

    def test_the_server_s_own_pause_counts_up_to_a_limit(self, server):
        headers = [("Retry-After", "7")], [("Retry-After", "100000")]
        _, pauses = ask(server, answer({}, code=429, headers=headers[0]), answer({}, code=429, headers=headers[1]), answer(GOOD))
        assert pauses == [7.0, 30.0]

    def test_it_gives_up_after_the_retries(self, server):
        with pytest.raises(EndpointError, match="after 3 attempts: HTTP 503") as caught:
            ask(server, answer({}, code=503))
        assert caught.value.transient
        assert len(server.asked) == 3

    @pytest.mark.parametrize("code", [400, 401, 404, 422])
    def test_a_refusal_is_not_repeated_and_its_text_is_shown(self, server, code):
        with pytest.raises(EndpointError, match=f"HTTP {code}: .*no such model") as caught:
            ask(server, answer({"error": "no such model"}, code=code))
        assert not caught.value.transient
        assert len(server.asked) == 1

    def test_a_connection_that_is_hung_up_is_tried_again(self, server):
        assert ask(server, hang_up, answer(GOOD))[0].attempts == 2

    def test_an_answer_cut_short_is_tried_again(self, server):
        assert ask(server, answer(GOOD, length=100_000), answer(GOOD), timeout_s=1.0)[0].attempts == 2

    def test_a_port_where_nobody_listens_is_told_in_one_line(self, server):
        server.close()
        with pytest.raises(EndpointError, match="Connection refused") as caught:
            ask(server, answer(GOOD))
        assert caught.value.transient
        server.__init__()


class TestSlow:
    @pytest.mark.parametrize("behaviour", [silent, drip, drip_headers])
    def test_a_slow_answer_ends_at_the_limit_even_when_bytes_drip_in(self, server, behaviour):
        began = time.monotonic()
        with pytest.raises(EndpointError, match=r"within 0\.3 s"):
            ask(server, behaviour, timeout_s=0.3, retries=0)
        assert time.monotonic() - began < 1.0

    def test_after_a_slow_answer_it_is_asked_again(self, server):
        assert ask(server, silent, answer(GOOD), timeout_s=0.3)[0].attempts == 2


class TestMalformed:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"<html>",
            b"[]",
            b"null",
            b'{"choices": []}',
            b'{"choices": [{}]}',
            b'{"choices": [{"text": 5}]}',
            b'{"choices": [{"text": "a", "logprobs": {"top_logprobs": [{"a": NaN}]}}]}',
            b'{"choices": [{"text": "a", "logprobs": {"top_logprobs": [{"a": 0.7}]}}]}',
            b'{"choices": [{"text": "a", "logprobs": {"top_logprobs": [{"a": "-1"}]}}]}',
            b'{"choices": [{"text": "a", "logprobs": {"top_logprobs": [5]}}]}',
            b'{"choices": [{"text": "a", "logprobs": [1]}]}',
            b'{"choices": [{"text": "a", "logprobs": {"content": [{"top_logprobs": [{"token": "a"}]}]}}]}',
            b'{"choices": [{"text": "a", "logprobs": {"content": [{"top_logprobs": ['
            b'{"token": "a", "id": 1, "logprob": -1}, {"token": "b", "id": 1, "logprob": -2}]}]}}]}',
            b"[" * 100_000,
            b"\xff\xfe",
        ],
    )
    def test_it_is_refused_in_one_line_and_not_asked_again(self, server, content):
        with pytest.raises(EndpointError) as caught:
            ask(server, answer(content))
        assert "\n" not in str(caught.value)
        assert not caught.value.transient
        assert len(server.asked) == 1

    def test_an_endless_answer_is_cut(self, server):
        with pytest.raises(EndpointError, match="more than"):
            ask(server, answer(b" " * (9 << 20)))


class TestKey:
    def test_it_goes_into_one_header(self, server, monkeypatch):
        monkeypatch.setenv("E0_KEY", KEY)
        ask(server, answer(GOOD), key_variable="E0_KEY")
        _, headers, body = server.asked[0]
        assert headers["Authorization"] == f"Bearer {KEY}"
        assert KEY not in json.dumps(body)

    def test_without_a_variable_none_is_sent(self, server):
        ask(server, answer(GOOD))
        assert "Authorization" not in server.asked[0][1]

    @pytest.mark.parametrize("code", [401, 503])
    def test_a_server_that_echoes_it_does_not_bring_it_into_the_message(self, server, monkeypatch, code):
        monkeypatch.setenv("E0_KEY", KEY)
        with pytest.raises(EndpointError) as caught:
            ask(server, answer({"error": f"wrong key {KEY}"}, code=code), key_variable="E0_KEY")
        assert KEY not in str(caught.value)
        assert "(key)" in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__

    def test_an_answer_that_echoes_it_does_not_bring_it_into_the_message(self, server, monkeypatch):
        monkeypatch.setenv("E0_KEY", KEY)
        with pytest.raises(EndpointError) as caught:
            ask(server, answer({"echo": KEY}), key_variable="E0_KEY")
        assert KEY not in str(caught.value)

    def test_it_does_not_stand_in_the_endpoint_s_own_text(self, monkeypatch):
        monkeypatch.setenv("E0_KEY", KEY)
        assert KEY not in repr(Endpoint(url="http://127.0.0.1/v1", model="m", key_variable="E0_KEY"))

    @pytest.mark.parametrize("value", ["", "two words", "líne", "a\x00b"[:1] + "\x01b"])
    def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(self, server, monkeypatch, value):
        monkeypatch.setenv("E0_KEY", value)
        with pytest.raises(InputError, match="E0_KEY") as caught:
            ask(server, answer(GOOD), key_variable="E0_KEY")
        assert not value or value not in str(caught.value)
        assert server.asked == []

    def test_a_redirect_does_not_carry_it_on(self, server, monkeypatch):
        monkeypatch.setenv("E0_KEY", KEY)
        with pytest.raises(EndpointError, match="HTTP 302"):
            ask(server, answer({}, code=302, headers=[("Location", f"{server.url}/elsewhere")]), key_variable="E0_KEY")
        assert len(server.asked) == 1


class TestAddress:
    @pytest.mark.parametrize(
        "url", ["", "127.0.0.1:80", "file:///etc/passwd", "http://", "http://user:secret@host/v1", "http://host/v1?key=secret"]
    )
    def test_what_is_no_plain_address_is_refused_without_showing_it(self, url):
        with pytest.raises(InputError, match="endpoint: expected") as caught:
            Endpoint(url=url, model="m")
        assert "secret" not in str(caught.value)

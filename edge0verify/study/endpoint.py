"""Client of an OpenAI-compatible completions endpoint: text, and the log-probs of the first token, of another engine.

The key is read from an environment variable for each request and stands in one header only; every message that leaves
this module has it struck out, and a redirect is refused, since it would carry the key to another place.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from edge0verify.records.errors import InputError

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
LARGEST_ANSWER = 8 << 20
LONGEST_PAUSE_S = 30.0
LOGPROB_SLACK = 1e-3
"""A log-probability a little above 0 is rounding of the server's; more is no log-probability."""


class EndpointError(InputError):
    """The endpoint gave no usable answer. `transient`: it may on another day (unreachable, busy, too slow)."""

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient


@dataclass(frozen=True)
class Candidate:
    """One possible next token."""

    token: str
    id: int | None
    """None where the endpoint names tokens by text only."""
    logprob: float


@dataclass(frozen=True)
class Completion:
    """What the endpoint answered to one prompt."""

    text: str
    first: tuple[Candidate, ...]
    """Candidates for the first generated token, best first; empty where the endpoint gives no log-probs."""
    finish_reason: str | None
    attempts: int


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One model behind one address. `url` is the base, such as http://127.0.0.1:8080/v1."""

    url: str
    model: str
    key_variable: str | None = None
    """Name of the environment variable that holds the key."""
    timeout_s: float = 60.0
    """For a whole attempt, from connecting to the last byte."""
    retries: int = 3
    backoff_s: float = 0.5
    """Pause before the first retry; doubled each time. A Retry-After of the server's counts, up to 30 s."""
    top: int = 8
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"endpoint: expected http://HOST/v1 or https://HOST/v1, found scheme {parts.scheme!r}")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise InputError(
                "endpoint: expected an address without user, password or query; a key belongs in an environment variable"
            )
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0) or self.retries < 0 or self.backoff_s < 0 or self.top < 1:
            raise InputError("endpoint: expected a time limit above 0, retries and pause of at least 0, top of at least 1")

    def complete(self, prompt: str, *, max_tokens: int) -> Completion:
        """The greedy completion of a prompt. EndpointError when there is none after all attempts."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "logprobs": self.top}
        key, attempt = self._key(), 0
        while True:
            attempt += 1
            try:
                return self._read(self._post(json.dumps(body).encode(), key), attempt)
            except _Failure as failure:
                if not failure.transient or attempt > self.retries:
                    tries = f" after {attempt} attempts" if attempt > 1 else ""
                    message = f"{self.url}: expected a completion, found{tries}: {failure}"
                    raise EndpointError(_strike(message, key), transient=failure.transient) from None
                pause = max(self.backoff_s * 2 ** (attempt - 1), failure.retry_after)
            self.sleep(min(pause, LONGEST_PAUSE_S))

    def _key(self) -> str | None:
        if self.key_variable is None:
            return None
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise InputError(f"endpoint: expected a key in the environment variable {self.key_variable}, found none")
        if not key.isascii() or not key.isprintable() or " " in key:
            # http.client would refuse it in a message that shows it.
            raise InputError(f"endpoint: expected a key of printable ASCII in {self.key_variable}, found other characters")
        return key

    def _post(self, body: bytes, key: str | None) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(f"{self.url.rstrip('/')}/completions", data=body, headers=headers, method="POST")
        watch = _Deadline(self.timeout_s)
        opener = urllib.request.build_opener(_NoRedirect, _Http(watch), _Https(watch))
        try:
            with watch, opener.open(request, timeout=self.timeout_s) as answer:
                content = answer.read(LARGEST_ANSWER + 1)
                missing = answer.length if len(content) <= LARGEST_ANSWER else 0
        except urllib.error.HTTPError as error:
            with error:
                raise _http_failure(error) from None
        except (OSError, http.client.HTTPException) as error:
            slow = watch.passed or isinstance(getattr(error, "reason", error), TimeoutError)
            said = (
                f"no answer within {self.timeout_s:g} s" if slow else f"{type(error).__name__}: {getattr(error, 'reason', error)}"
            )
            raise _Failure(said, transient=True) from None
        if watch.passed:
            raise _Failure(f"no whole answer within {self.timeout_s:g} s", transient=True)
        if missing:
            raise _Failure(f"an answer cut off {missing} bytes before its end", transient=True)
        if len(content) > LARGEST_ANSWER:
            raise _Failure(f"an answer of more than {LARGEST_ANSWER} bytes", transient=False)
        return content

    def _read(self, content: bytes, attempts: int) -> Completion:
        try:
            choice = json.loads(content)["choices"][0]
            text, reason = choice["text"], choice.get("finish_reason")
            first = first_candidates(choice.get("logprobs"))
        except _Failure:
            raise
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            said = content[:80].decode("utf-8", "replace")
            raise _Failure(f"no completion in the answer ({type(error).__name__}): {said!r}", transient=False) from None
        if not isinstance(text, str):
            raise _Failure(f"choices[0].text: expected a text, found {type(text).__name__}", transient=False)
        return Completion(text, first[: self.top], reason if isinstance(reason, str) else None, attempts)


def first_candidates(logprobs: Any) -> tuple[Candidate, ...]:
    """The candidates of the first token, best first, from either form in use; () where there are none.

    {top_logprobs: [{token: logprob}]} is the completions form; {content: [{top_logprobs: [{token, id, logprob}]}]} is what
    llama.cpp's server answers. Equal log-probs keep the server's order.
    """
    if logprobs is None:
        return ()
    if logprobs.get("content"):
        listed = logprobs["content"][0].get("top_logprobs") or ()
        pairs = [(item["token"], item.get("id"), item["logprob"]) for item in listed]
    else:
        table = (logprobs.get("top_logprobs") or [None])[0] or {}
        pairs = [(token, None, value) for token, value in table.items()]
    found = [Candidate(str(token), _token_id(token, number), _logprob(value)) for token, number, value in pairs]
    ids = [candidate.id for candidate in found if candidate.id is not None]
    if len(ids) != len(set(ids)):
        raise _Failure("logprobs: one token id occurs twice", transient=False)
    return tuple(sorted(found, key=lambda candidate: -candidate.logprob))


def _token_id(token: Any, number: Any) -> int | None:
    """The id where the server gives one: as a field, or as the text 'token_id:NN' that vLLM can be asked for."""
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return number
    digits = token.removeprefix("token_id:") if isinstance(token, str) and token.startswith("token_id:") else ""
    return int(digits) if digits.isdecimal() else None


def _logprob(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value > LOGPROB_SLACK:
        raise _Failure(f"logprobs: expected finite numbers of at most 0, found {value!r}", transient=False)
    return float(value)


class _Failure(Exception):
    """One attempt gave nothing."""

    def __init__(self, message: str, *, transient: bool, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.transient = transient
        self.retry_after = retry_after


def _http_failure(error: urllib.error.HTTPError) -> _Failure:
    """A refusal; the start of what the server says about it goes into the message."""
    try:
        said = " ".join(error.read(2000).decode("utf-8", "replace").split())[:200]
    except (OSError, http.client.HTTPException):
        said = ""
    after = (error.headers.get("Retry-After") or "").strip()
    pause = float(after) if after.isdecimal() else 0.0
    transient = error.code in TRANSIENT
    return _Failure(f"HTTP {error.code}" + (f": {said}" if said else ""), transient=transient, retry_after=pause)


def _strike(message: str, key: str | None) -> str:
    return message.replace(key, "(key)") if key else message


class _Deadline:
    """Cuts a connection when the time is up: a socket's own limit starts anew with every byte that drips in."""

    def __init__(self, limit_s: float) -> None:
        self.passed = False
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(limit_s, self._cut)
        self._timer.daemon = True

    def guard(self, connected: socket.socket) -> None:
        with self._lock:
            self._socket = connected

    def _cut(self) -> None:
        with self._lock:
            self.passed = True
            if self._socket is not None:
                try:
                    self._socket.shutdown(socket.SHUT_RDWR)
                except OSError:
                    return

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


def _guarded(connection: type[http.client.HTTPConnection], watch: _Deadline) -> type[http.client.HTTPConnection]:
    class Guarded(connection):
        def connect(self) -> None:
            super().connect()
            watch.guard(self.sock)

    return Guarded


class _Http(urllib.request.HTTPHandler):
    def __init__(self, watch: _Deadline) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_guarded(http.client.HTTPConnection, self._watch), request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, watch: _Deadline) -> None:
        super().__init__()
        self._watch = watch

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(_guarded(http.client.HTTPSConnection, self._watch), request)

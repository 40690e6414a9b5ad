"""Debian's chromium over its debugging pipe: opens a page, measures it, takes its picture, lists what it asks of a network."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
LOCAL = ("file:", "data:", "about:", "chrome:")


def found() -> str | None:
    """Where chromium is installed; None where it is not."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One chromium with a profile of its own and one tab. A context manager."""

    def __init__(self, profile: Path) -> None:
        to_child, from_us = os.pipe()
        to_us, from_child = os.pipe()

        def wire() -> None:
            # The child's ends may be 3 or 4 already: move them out of the way first.
            read, write = os.dup(to_child), os.dup(from_child)
            os.dup2(read, 3)
            os.dup2(write, 4)

        argv = [found(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            argv, close_fds=False, preexec_fn=wire, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        os.close(to_child)
        os.close(from_child)
        self._to, self._from, self._left, self._number = from_us, to_us, b"", 0
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self._call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self._call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command to the tab; its result."""
        return self._call(method, session=self._session, **parameters)

    def _call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        said: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            said["sessionId"] = session
        data = json.dumps(said).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            message = self._read()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def _read(self, timeout: float = 20.0) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while b"\0" not in self._left:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("chromium says nothing")
            part = os.read(self._from, 1 << 20)
            if not part:
                raise RuntimeError("chromium ended")
            self._left += part
        message, self._left = self._left.split(b"\0", 1)
        return json.loads(message)

    def open(self, path: Path, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a local page as a screen of that width shows it, in light or dark."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        answer = self.call("Page.navigate", url=path.resolve().as_uri())
        if answer.get("errorText"):
            raise RuntimeError(f"{path}: {answer['errorText']}")
        self._until("Page.loadEventFired")

    def _until(self, method: str) -> None:
        seen = 0
        while True:
            if any(event.get("method") == method for event in self.events[seen:]):
                return
            seen = len(self.events)
            self.events.append(self._read())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def key(self, name: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def picture(self, path: Path, *, whole: bool = True) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, fromSurface=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def asked(self) -> list[str]:
        """Addresses that the page asked for beyond this machine."""
        sent = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith(LOCAL)]

    def complaints(self) -> list[str]:
        """What the browser logged of errors and of refused content."""
        logged = [e["params"]["entry"]["text"] for e in self.events if e.get("method") == "Log.entryAdded"]
        return [*logged, *(str(e["params"]) for e in self.events if e.get("method") == "Runtime.exceptionThrown")]

    def close(self) -> None:
        os.close(self._to)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

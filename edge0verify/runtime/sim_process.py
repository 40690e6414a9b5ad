"""The process of one simulated device and the records exchanged with it (kernels/sim/wire.h)."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from edge0verify.runtime.protocol import DeviceError
from edge0verify.runtime.sources import native_file

ARG, ARGS = struct.Struct("<IIQQ"), 20
HEAD = struct.Struct("<IIQQQQ64s")
REPLY = struct.Struct("<iiQ")
LAUNCH, COPY, FILL, PEER, HANG, PING = range(1, 7)
SCALAR, POINTER = 0, 1
START_S = 20.0


@dataclass(frozen=True)
class Reply:
    """code as drivers number it (0 success); signal and address of a fault; `gone` when the process is no more."""

    code: int
    signal: int = 0
    address: int | None = None
    gone: bool = False


class DeviceProcess:
    """Starts `_simdev` and speaks to it; one request at a time."""

    def __init__(
        self, index: int, arenas: Sequence[tuple[int, int, int]], *, rate: float, flip_seed: int, flip_from: int, corrupt_mask: int
    ) -> None:
        program, library = native_file("_simdev"), native_file("_phase")
        if program is None or library is None:
            raise DeviceError("start", 100, "no device", "the simulated device was not built (_simdev, _phase)")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [
            str(program),
            str(index),
            str(theirs.fileno()),
            str(library),
            str(rate),
            str(flip_seed),
            str(flip_from),
            str(corrupt_mask),
            *(f"{fd}:{base}:{size}" for fd, base, size in arenas),
        ]
        with theirs:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(), *(fd for fd, _, _ in arenas)), start_new_session=True
            )
        self.socket = ours
        if self._receive(START_S).code != 0:
            self.close()
            raise DeviceError("start", 100, "no device", f"simulated device {index} did not start")

    def launch(self, name: str, blocks: int, args: Sequence[tuple[int, bytes, int]]) -> Reply:
        """args: (kind, up to 8 bytes, extent in bytes behind a pointer) in the kernel's order."""
        if len(args) > ARGS or len(name) > 63:
            return Reply(1)
        packed = b"".join(ARG.pack(kind, len(raw), int.from_bytes(raw, "little"), extent) for kind, raw, extent in args)
        return self._ask(LAUNCH, len(args), (blocks, 0, 0, 0), name, packed)

    def copy(self, to: int, source: int, nbytes: int, *, wrong: bool = False) -> Reply:
        return self._ask(COPY, 0, (to, source, nbytes, int(wrong)))

    def fill(self, to: int, value: int, nbytes: int, width: int) -> Reply:
        return self._ask(FILL, 0, (to, value, nbytes, width))

    def peer(self, arena: int, allowed: bool) -> Reply:
        return self._ask(PEER, 0, (arena, int(allowed), 0, 0))

    def hang(self, patience_s: float | None) -> Reply:
        """Never answers."""
        return self._ask(HANG, 0, (0, 0, 0, 0), patience_s=patience_s)

    def _ask(
        self, op: int, count: int, numbers: tuple, name: str = "", args: bytes = b"", *, patience_s: float | None = None
    ) -> Reply:
        try:
            self.socket.send(HEAD.pack(op, count, *numbers, name.encode()) + args.ljust(ARG.size * ARGS, b"\0"))
        except OSError:
            return Reply(999, gone=True)
        return self._receive(patience_s)

    def _receive(self, patience_s: float | None) -> Reply:
        if patience_s is not None and not select.select([self.socket], [], [], patience_s)[0]:
            return Reply(702)
        try:
            raw = self.socket.recv(REPLY.size)
        except OSError:
            raw = b""
        if len(raw) != REPLY.size:
            return Reply(999, gone=True)
        code, number, address = REPLY.unpack(raw)
        return Reply(code, number, address if number else None, gone=number != 0)

    def ended(self, timeout_s: float = 5.0) -> int | None:
        """Waits for the process's own end; its status, negative for a signal."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout_s)
        return None

    def close(self) -> None:
        """Ends the process, whatever it does."""
        self.socket.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

"""A user's kernel in a shared library, called in a child process (signatures: kernels/edge0_kernel.h).

Buffers lie in one file that both processes map: inputs between NaNs, outputs between guard bytes and preset to poison.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge0verify.numerics.blocks import POISON_CODE, Blocks, poison_f16, poison_f32
from edge0verify.numerics.contracts import Contract
from edge0verify.records.errors import InputError
from edge0verify.study.kernel_cases import Inputs
from edge0verify.study.kernel_guard import GUARD, GUARD_BYTE
from edge0verify.variants.kernels import PACKAGE

WRITES = {"D": ("d-xl", "d-xlq"), "U": ("u",), "A1": ("a-gate", "a-up", "a-h"), "A2": ("a-y", "a-yl")}
"""Tensors that a kernel of each part writes."""
REFUSED = 1
NAN_BITS = 0x7FC0
"""Repeated, it is a NaN as float16 and as float32: what lies beside inputs."""
_ALIGN = 64
SHIPPED = {"header": "edge0_kernel.h", "example": "example/d_mmvq.c"}
"""Files for authors of kernels, below kernels/."""


def shipped(name: str) -> str:
    """The text of a file of kernels/, as it lies in the package or in the source tree."""
    for root in (PACKAGE / "kernels", PACKAGE.parent / "kernels"):
        if (root / name).is_file():
            return (root / name).read_text()
    raise InputError(f"{name}: expected it beside the package's kernel sources, found none")


@dataclass(frozen=True)
class Called:
    """What came of one call: the tensors written, and in words what went wrong, or that the shape was refused."""

    tensors: Mapping[str, np.ndarray | Blocks]
    failures: tuple[str, ...] = ()
    refused: bool = False
    returned: bool = True
    """The call came back; False after a crash or a hang."""


class Library:
    """One symbol of one shared library. Use as a context manager: the child ends with it."""

    def __init__(self, path: Path, symbol: str, writes: tuple[str, ...], timeout_s: float = 20.0) -> None:
        if not path.is_file():
            raise InputError(f"{path}: expected a shared library, found no such file")
        self.path, self.symbol, self.writes, self.timeout_s = path.resolve(), symbol, writes, timeout_s
        self.calls = 0
        """Calls that returned 0."""
        self._child: subprocess.Popen | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="edge0verify-")

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_) -> None:
        self._stop()
        self._folder.cleanup()

    def call(self, contract: Contract, inputs: Inputs) -> Called:
        """Run the kernel once on `inputs`. InputError where the library or the symbol cannot be loaded."""
        layout = _Layout(contract, inputs, self.writes)
        file = Path(self._folder.name) / "buffers"
        file.write_bytes(layout.bytes())
        if self._child is None:
            self._start()
        answer = self._ask({"file": str(file), "arguments": layout.arguments})
        written = np.fromfile(file, np.uint8)
        file.unlink()
        failures = layout.damage(written)
        if "returned" not in answer:
            return Called({}, (answer["ended"], *failures), returned=False)
        code = answer["returned"]
        if code == REFUSED:
            return Called({}, tuple(failures), refused=True)
        if code != 0:
            return Called({}, (f"the kernel returned {code}", *failures))
        self.calls += 1
        return Called(layout.outputs(written), tuple(failures))

    def _start(self) -> None:
        reader, writer = os.pipe()
        self._said = (Path(self._folder.name) / "said").open("wb")
        script = Path(__file__).with_name("kernel_child.py")
        command = [sys.executable, "-I", str(script), str(self.path), self.symbol, str(writer)]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._said, stderr=self._said, pass_fds=(writer,), start_new_session=True
        )
        os.close(writer)
        self._answers = os.fdopen(reader, "rb", buffering=0)
        answer = self._read()
        if "error" in answer or "ended" in answer:
            raise InputError(f"{self.path}: expected a shared library with the symbol {self.symbol}, found: {self._reason(answer)}")

    def _reason(self, answer: dict) -> str:
        return answer.get("error") or answer["ended"]

    def _ask(self, job: dict) -> dict:
        try:
            self._child.stdin.write(json.dumps(job).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            pass  # it died; reading says how
        return self._read()

    def _read(self) -> dict:
        """One answer line, or {'ended': how the child ended} after a crash or a hang; then the next call starts a new child."""
        ready, _, _ = select.select([self._answers], [], [], self.timeout_s)
        line = self._answers.readline() if ready else b""
        if line:
            return json.loads(line)
        hung = not ready
        code = self._stop()
        said = Path(self._folder.name, "said").read_text("utf-8", "replace").strip().splitlines()
        tail = f" (its last words: {said[-1][:120]})" if said else ""
        if hung:
            return {"ended": f"no answer within {self.timeout_s:g} s; the kernel's process was ended{tail}"}
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return {"ended": f"the kernel's process ended by {how}{tail}"}

    def _stop(self) -> int:
        if self._child is None:
            return 0
        child, self._child = self._child, None
        child.stdin.close()
        try:
            code = child.wait(0.2)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        self._answers.close()
        self._said.close()
        return code


@dataclass(frozen=True)
class _Buffer:
    name: str
    offset: int
    value: np.ndarray
    """What it holds before the call."""
    output: bool

    @property
    def end(self) -> int:
        return self.offset + self.value.nbytes


class _Layout:
    """All buffers of one call in one stretch of bytes, and the arguments that point into it."""

    def __init__(self, contract: Contract, inputs: Inputs, writes: tuple[str, ...]) -> None:
        self.contract, self.writes = contract, writes
        self.buffers: list[_Buffer] = []
        self.arguments: list[tuple[str, int | None]] = []
        self._size = 0
        shape, stage = inputs.case.shape, contract.stage
        operand = inputs.operands(contract.operand)
        for at, weights in enumerate(inputs.weights):
            self._input(f"weights {at}", weights.raw)
        if stage != "A2":
            self._input("x", inputs.x)
        for name, value in (("codes", operand.codes), ("scales", operand.d), ("sums", operand.s)):
            self._input(name, value)
        if stage in ("A1", "A2"):
            self._input("ids", inputs.ids)
        if stage == "A2":
            self._input("route_weights", inputs.route_weights)
        pairs = shape.n * shape.slots
        if stage in ("D", "U"):
            self._rows("d-xl" if stage == "D" else "u", shape.n, shape.m)
            self._blocks("d-xlq", shape.n, shape.m)
        elif stage == "A1":
            self._rows("a-gate", pairs, shape.m)
            self._rows("a-up", pairs, shape.m)
            self._blocks("a-h", pairs, shape.m)
        else:
            self._rows("a-y", pairs, shape.m)
            self._rows("a-yl", shape.n, shape.m)
        numbers = [shape.m, shape.n, shape.k] + ([shape.experts, shape.slots] if stage in ("A1", "A2") else [])
        self.arguments += [("number", value) for value in numbers]

    def _add(self, name: str, value: np.ndarray | None, output: bool) -> None:
        if value is None:
            self.arguments.append(("pointer", None))
            return
        offset = -(-(self._size + GUARD) // _ALIGN) * _ALIGN
        self.buffers.append(_Buffer(name, offset, np.ascontiguousarray(value), output))
        self.arguments.append(("pointer", offset))
        self._size = self.buffers[-1].end + GUARD

    def _input(self, name: str, value: np.ndarray | None) -> None:
        self._add(name, value, False)

    def _rows(self, name: str, rows: int, columns: int) -> None:
        self._add(name, poison_f32((rows, columns)) if name in self.writes else None, True)

    def _blocks(self, name: str, rows: int, columns: int) -> None:
        made = name in self.writes
        wide = self.contract.store == "mmq"
        blocks = (rows, columns // 32)
        self._add(f"{name} codes", np.full((rows, columns), POISON_CODE, np.int8) if made else None, True)
        self._add(f"{name} scales", (poison_f32(blocks) if wide else poison_f16(blocks)) if made else None, True)
        self._add(f"{name} sums", poison_f16(blocks) if made and not wide else None, True)

    def bytes(self) -> bytes:
        """NaN between inputs, guard bytes round outputs."""
        whole = np.full(-(-self._size // 8) * 4, NAN_BITS, np.uint16).view(np.uint8)
        for b in self.buffers:
            if b.output:
                whole[b.offset - GUARD : b.offset] = GUARD_BYTE
                whole[b.end : b.end + GUARD] = GUARD_BYTE
            whole[b.offset : b.end] = b.value.reshape(-1).view(np.uint8)
        self._before = whole
        return whole.tobytes()

    def damage(self, written: np.ndarray) -> list[str]:
        """What the kernel wrote that it must not: inputs, and bytes before or after an output."""
        found = []
        for b in self.buffers:
            for what, part in (("before", slice(b.offset - GUARD, b.offset)), ("after", slice(b.end, b.end + GUARD))):
                wrong = np.flatnonzero(written[part] != self._before[part])
                if len(wrong):
                    first = int(wrong[0]) - (GUARD if what == "before" else 0)
                    found.append(f"{len(wrong)} bytes {what} {b.name} were written, the first at {first:+d}")
            if not b.output:
                wrong = np.flatnonzero(written[b.offset : b.end] != self._before[b.offset : b.end])
                if len(wrong):
                    found.append(f"{len(wrong)} bytes of its input {b.name} were written, the first at {int(wrong[0])}")
        return found

    def outputs(self, written: np.ndarray) -> dict[str, np.ndarray | Blocks]:
        """The tensors that the kernel writes, as it left them."""
        value = {b.name: written[b.offset : b.end].view(b.value.dtype).reshape(b.value.shape) for b in self.buffers if b.output}
        found: dict[str, np.ndarray | Blocks] = {}
        for name in self.writes:
            if name in value:
                found[name] = value[name]
            else:
                parts = (value[f"{name} codes"], value[f"{name} scales"], value.get(f"{name} sums"))
                found[name] = Blocks(*parts, self.contract.store)
        return found

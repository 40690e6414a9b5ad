"""Speed of a device's kernels: rates of the tile products, weight bandwidth of the row products, beside its own ceilings.

Times are device events round replays of a captured graph, so that launches from Python do not count; the weights of a graph's
launches rotate over at least 256 MB, so that no cache holds them.  The int8 ceiling is the vendor's product, the bandwidth ceiling
a kernel that only reads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge0verify.records.errors import InputError
from edge0verify.runtime.detect import Absent, open_device
from edge0verify.runtime.ops import DeviceBlocks, DeviceOps, ceil_div
from edge0verify.runtime.protocol import Buffer
from edge0verify.runtime.tuned import TunedOps
from edge0verify.study.environment import describe_kernels
from edge0verify.study.on_device import close_kernels
from edge0verify.study.speed import SpeedReport, SpeedRow, median_and_spread, random_weights
from edge0verify.study.speed_prefill import prefill_shares
from edge0verify.variants.device_kernels import DeviceKernels

ROTATE = 256 << 20
FORMATS = ("Q8_0", "IQ4_NL", "Q3_K")
TILES, ROWS = ("w11", "mmq"), ("mmvq", "ref")
FEW = 64
"""Input rows from which on the tile products are measured, and below which the row products."""
Launch = Callable[[], Any]
Tell = Callable[[str, int, int], None]


class Bench:
    """Graph-timed launches on one device."""

    def __init__(self, device: str, *, repeats: int = 7) -> None:
        self.runtime, self.index = open_device(device)
        if not hasattr(self.runtime, "begin_capture"):
            raise Absent(f"{device}: no graph capture to time launches in")
        self.kernels = DeviceKernels(self.runtime, self.index, stream=self.runtime.stream(self.index))
        self.ops: DeviceOps = self.kernels.ops
        self.stream, self.repeats = self.ops.stream, repeats
        self.tuned = isinstance(self.ops, TunedOps)
        self.rotate = ROTATE if self.runtime.name != "sim" else 1 << 20  # a simulated device has no cache and no speed

    def time(self, launches: Sequence[Launch], *, rounds: int = 1) -> tuple[float, float]:
        """Microseconds of a launch and relative spread; `launches` launch on the stream, and are captured once."""
        for launch in launches:
            launch()
        self.runtime.synchronise(self.index, self.stream)
        self.runtime.begin_capture(self.stream)
        for launch in launches:
            launch()
        graph = self.runtime.end_capture(self.stream)
        start, end = self.runtime.event(self.index), self.runtime.event(self.index)
        times = []
        for i in range(self.repeats + 2):
            self.runtime.record(start, self.stream)
            for _ in range(rounds):
                self.runtime.launch_graph(graph, self.stream)
            self.runtime.record(end, self.stream)
            if i >= 2:                                   # the first two warm up
                times.append(self.runtime.elapsed(start, end) * 1e3 / (rounds * len(launches)))
        return median_and_spread(times)

    def operand(self, rng: np.random.Generator, n: int, k: int, quantiser: str) -> tuple[Buffer, DeviceBlocks]:
        x = self.ops.upload(rng.standard_normal((n, k)).astype(np.float32))
        return x, self.ops.quantise(quantiser, x, n, k)

    def weights(self, fmt: str, raw: np.ndarray, m: int, *, tile: bool) -> list:
        """As many copies as launches rotate over."""
        forms = {"tile": tile, "row": not tile} if self.tuned else {}
        size = m * raw.shape[1] if not (tile and self.tuned) else m * raw.shape[1] // BYTES[fmt][1] * BYTES[fmt][0]
        return [self.ops.weights(fmt, raw, rows=m, **forms) for _ in range(max(1, ceil_div(self.rotate, size)))]

    def free(self, weights: list) -> None:
        for w in weights:
            self.ops.free_weights(w)
        self.ops.release()


BYTES = {"Q8_0": (32, 34), "IQ4_NL": (32, 18), "Q3_K": (256, 110)}
"""Values and bytes of a block: the tile form holds a byte a value."""


def measure(
    device: str,
    *,
    m: int = 4096,
    k: int = 8192,
    counts: Sequence[int] = (1, 8, 512, 4096),
    formats: Sequence[str] = FORMATS,
    repeats: int = 7,
    int8_tops: float | None = None,
    prefill: bool = True,
    progress: Tell | None = None,
) -> SpeedReport:
    """Everything about one device.  Raises Absent with the reason where it is not here.

    int8_tops: a ceiling measured before, instead of measuring it again.
    """
    if k % 256 or m < 1 or min(counts) < 1:
        raise InputError(f"shape {m},{k}: expected K a multiple of 256, and rows of at least 1")
    bench = Bench(device, repeats=repeats)
    try:
        return _measure(bench, m, k, counts, formats, int8_tops, prefill, progress)
    finally:
        close_kernels(bench.kernels)


def _measure(
    bench: Bench, m: int, k: int, counts: Sequence[int], formats: Sequence[str], int8_tops: float | None, prefill: bool,
    progress: Tell | None,
) -> SpeedReport:
    missing: list[str] = []
    tell = progress or (lambda what, done, total: None)
    ceiling = int8_tops
    if ceiling is None and any(n >= FEW for n in counts):
        ceiling, why = vendor_int8(bench, m, max(counts), k)
        missing += [f"share of the int8 ceiling: {why}"] if why else []
    few, many = [n for n in counts if n < FEW], [n for n in counts if n >= FEW]
    read = {mib: read_only(bench, mib << 20) for mib in ((16, 32, 256) if few and bench.tuned else ())}
    if few and not bench.tuned:
        missing.append("share of a reading kernel's bandwidth and of the bare loop: only the CUDA forms for sm_90 have them")
    rows: list[SpeedRow] = []
    todo = [*(("tile", n, fmt) for n in many for fmt in formats), *(("row", few, fmt) for fmt in formats if few)]
    for at, (part, n, fmt) in enumerate(todo):
        tell(f"{part} products", at, len(todo))
        rows += tile_rows(bench, fmt, m, n, k, ceiling) if part == "tile" else row_rows(bench, fmt, m, k, n, read)
    tell("products", len(todo), len(todo))
    shares = prefill_shares(bench.kernels) if prefill else None
    return SpeedReport(
        device=describe_kernels(bench.kernels),
        rows=tuple(rows),
        int8_tops=ceiling,
        read_tbs={str(mib): tbs for mib, tbs in read.items()},
        prefill=shares,
        not_measured=tuple(missing),
    )


def read_only(bench: Bench, nbytes: int, total: int = 1 << 30) -> float:
    """TB/s of a kernel that reads nbytes a launch, rotating over `total`."""
    memory, out = bench.runtime.allocate(bench.index, total), bench.runtime.allocate(bench.index, 1 << 20)
    bench.runtime.memset(memory, 0x5A5A1234, 4, bench.stream)
    blocks = (bench.kernels.here.units or 1) * 4

    def launch(at: int) -> Launch:
        return lambda: bench.ops._start("e0_read_only", blocks, 512, [memory.at(at, nbytes), ctypes.c_int64(nbytes // 16), out])

    us, _ = bench.time([launch(i * nbytes) for i in range(total // nbytes)], rounds=3)
    bench.runtime.free(memory)
    bench.runtime.free(out)
    return nbytes / us / 1e6


def vendor_int8(bench: Bench, m: int, n: int, k: int) -> tuple[float | None, str | None]:
    """(TOPS of the vendor's int8 matrix product through torch, None), or (None, why it was not measured)."""
    try:
        import torch
    except ImportError:
        return None, "torch is not installed, which calls the vendor's int8 product"
    if bench.runtime.name not in ("cuda", "hip") or not torch.cuda.is_available():
        return None, f"torch sees no {bench.runtime.name} device"
    where = f"cuda:{bench.index}"
    a = [torch.randint(-127, 128, (n, k), dtype=torch.int8, device=where) for _ in range(4)]
    b = [torch.randint(-127, 128, (m, k), dtype=torch.int8, device=where).t() for _ in range(4)]
    times = []
    try:
        with torch.cuda.device(bench.index):
            for i in range(bench.repeats + 2):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                for j in range(8):
                    torch._int_mm(a[j % 4], b[j % 4])
                end.record()
                end.synchronize()
                if i >= 2:
                    times.append(start.elapsed_time(end) / 8)
    except RuntimeError as error:                        # shapes that the vendor's product does not take
        return None, f"torch._int_mm: {str(error).splitlines()[0]}"
    return 2.0 * m * n * k / median_and_spread(times)[0] / 1e9, None


def tile_rows(bench: Bench, fmt: str, m: int, n: int, k: int, ceiling: float | None) -> Iterator[SpeedRow]:
    """The tile products at full width."""
    rng = np.random.default_rng(5)
    weights = bench.weights(fmt, random_weights(rng, fmt, m, k), m, tile=True)
    out, work = bench.ops.buffer(4 * m * n), 2.0 * m * n * k
    more: dict[str, Any] = {}
    if bench.tuned:
        padded = ceil_div(n, 128) * 128 * k
        more["room"] = (bench.ops.buffer(padded), bench.ops.buffer(padded // 8))

    def row(part: str, variant: str, measured: tuple[float, float], bare: float | None = None) -> SpeedRow:
        us, spread = measured
        tops = work / us / 1e6
        return SpeedRow(part=part, variant=variant, fmt=fmt, m=m, n=n, k=k, us=us, spread=spread, tops=tops,
                        of_int8=tops / ceiling if ceiling else None, of_bare=tops / bare if bare else None)

    for variant in TILES:
        _, operand = bench.operand(rng, n, k, "mmq" if variant == "mmq" else "mmvq")

        def launch(w: Any, variant: str = variant, operand: DeviceBlocks = operand) -> Launch:
            return lambda: bench.ops.rows(variant, w, operand, out=out, **more)

        def bare_launch(w: Any, variant: str = variant, operand: DeviceBlocks = operand) -> Launch:
            return lambda: bench.ops._tile_product(variant, w, operand, None, 1, out, n, None, bare=True, **more)

        bare = None
        if variant == "w11" and bench.tuned:
            loop = row("bare", variant, bench.time([bare_launch(w) for w in weights]))
            bare = loop.tops
            yield loop
        portable = bench.tuned and variant == "mmq" and fmt == "Q3_K"
        # Far from any ceiling, the portable form needs no rotation.
        measured = bench.time([launch(w) for w in (weights[:1] if portable else weights)])
        yield replace(row("tile", variant, measured, bare), note="portable form" if portable else "")
    bench.free(weights)


def row_rows(bench: Bench, fmt: str, m: int, k: int, counts: Sequence[int], read: dict[int, float]) -> Iterator[SpeedRow]:
    """The row products at small batches: alone, and mmvq with the operand's quantisation in front."""
    rng = np.random.default_rng(6)
    raw = random_weights(rng, fmt, m, k)
    weights = bench.weights(fmt, raw, m, tile=False)
    reading = read.get(32 if raw.size > 24 << 20 else 16)
    for n in counts:
        x, operand = bench.operand(rng, n, k, "mmvq")
        out, blocks = bench.ops.buffer(4 * m * n), n * k // 32

        def alone(w: Any, variant: str, operand: DeviceBlocks = operand, out: Buffer = out) -> Launch:
            return lambda: bench.ops.rows(variant, w, operand, out=out)

        def quantised(w: Any, x: Buffer = x, operand: DeviceBlocks = operand, out: Buffer = out, blocks: int = blocks) -> Launch:
            def run() -> None:
                args = [x, ctypes.c_int64(blocks), operand.codes, operand.d, operand.s]
                bench.ops.launch("e0_quantise_mmvq", ceil_div(blocks, 4), 128, args)
                bench.ops.rows("mmvq", w, operand, out=out)

            return run

        todo = [
            ("mmvq", "", [alone(w, "mmvq") for w in weights], 4),
            ("mmvq", "with quantisation", [quantised(w) for w in weights], 4),
            ("ref", "", [alone(w, "ref") for w in weights[:2]], 1),
        ]
        for variant, note, launches, rounds in todo:
            us, spread = bench.time(launches, rounds=rounds)
            tbs = raw.size / us / 1e6
            rate = 2.0 * m * n * k / us / 1e6
            yield SpeedRow(part="row", variant=variant, fmt=fmt, m=m, n=n, k=k, us=us, spread=spread, tops=rate,
                           weights_tbs=tbs, of_reading=tbs / reading if reading else None, note=note)
    bench.free(weights)

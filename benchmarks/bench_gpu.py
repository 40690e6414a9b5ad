"""Speed of the device kernels: TOPS of the tile products, weight bandwidth of the row products, beside the device's own ceilings.

    python benchmarks/bench_gpu.py [--json FILE] [--m 4096 --n 4096 --k 8192]

Times are device events round replays of a captured graph, so that launches from Python do not count; the weights of a graph's
launches rotate over at least 256 MB, so that no cache holds them.  The int8 ceiling is the vendor's product (torch._int_mm where
torch is there), the bandwidth ceiling a kernel that only reads.  `bare` is a tile product that copies nothing after its first
stages.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from edge0verify.runtime.detect import Absent, open_device
from edge0verify.runtime.ops import BLOCK_BYTES, DeviceBlocks, ceil_div
from edge0verify.runtime.tuned import WIDE, TunedOps

ROTATE = 256 << 20


@dataclass(frozen=True)
class Row:
    """One measurement; us is the median per launch, spread the range over the repetitions as a share of it."""

    kernel: str
    fmt: str
    n: int
    us: float
    spread: float
    tops: float | None = None
    weights_tbs: float | None = None
    share: float | None = None  # of the int8 ceiling, or of a read-only kernel's bandwidth
    bare: float | None = None  # share of the variant's own bare inner loop


def random_weights(rng, fmt: str, rows: int, k: int) -> np.ndarray:
    values, size = BLOCK_BYTES[fmt]
    blocks = rng.integers(0, 256, (rows, k // values, size), dtype=np.uint8)
    at = 108 if fmt == "Q3_K" else 0
    d = (rng.standard_normal(blocks.shape[:2]) * 0.01).astype(np.float16)
    blocks[..., at : at + 2] = d.view(np.uint8).reshape(*d.shape, 2)
    return blocks.reshape(rows, -1)


class Bench:
    """Graph-timed launches on one device."""

    def __init__(self, device: str, *, repeats: int = 7, image: bytes | None = None) -> None:
        self.runtime, self.index = open_device(device)
        self.stream = self.runtime.stream(self.index)
        self.ops = TunedOps(self.runtime, self.index, stream=self.stream, image=image)
        self.repeats = repeats

    def time(self, launches, *, rounds: int = 1) -> tuple[float, float]:
        """Microseconds per launch and relative spread; `launches` are callables that launch on the stream, captured once."""
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
            if i >= 2:
                times.append(self.runtime.elapsed(start, end) * 1e3 / (rounds * len(launches)))
        median = statistics.median(times)
        return median, (max(times) - min(times)) / median

    def operand(self, rng, n: int, k: int, quantiser: str = "mmvq") -> tuple[object, DeviceBlocks]:
        x = self.ops.upload(rng.standard_normal((n, k)).astype(np.float32))
        return x, self.ops.quantise(quantiser, x, n, k)


def read_only(bench: Bench, nbytes: int, total: int = 1 << 30) -> float:
    """TB/s of a kernel that reads nbytes a launch, rotating over `total`."""
    memory, out = bench.runtime.allocate(bench.index, total), bench.runtime.allocate(bench.index, 1 << 20)
    bench.runtime.memset(memory, 0x5A5A1234, 4, bench.stream)
    blocks = 132 * 4

    def launch(at: int):
        return lambda: bench.ops._start("e0_read_only", blocks, 512, [memory.at(at, nbytes), ctypes.c_int64(nbytes // 16), out])

    us, _ = bench.time([launch(i * nbytes) for i in range(total // nbytes)], rounds=3)
    bench.runtime.free(memory)
    bench.runtime.free(out)
    return nbytes / us / 1e6


def vendor_int8(m: int, n: int, k: int) -> float | None:
    """TOPS of the vendor's int8 matrix product through torch; None where torch is absent."""
    try:
        import torch
    except ImportError:
        return None
    a = [torch.randint(-127, 128, (n, k), dtype=torch.int8, device="cuda") for _ in range(4)]
    b = [torch.randint(-127, 128, (m, k), dtype=torch.int8, device="cuda").t() for _ in range(4)]
    times = []
    for i in range(9):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for j in range(8):
            torch._int_mm(a[j % 4], b[j % 4])
        end.record()
        end.synchronize()
        if i > 1:
            times.append(start.elapsed_time(end) / 8)
    return 2.0 * m * n * k / statistics.median(times) / 1e9


def tile_rows(bench: Bench, fmt: str, m: int, n: int, k: int, ceiling: float | None, variants=("w11", "mmq")) -> list[Row]:
    """The tile products at full width."""
    rng = np.random.default_rng(5)
    raw = random_weights(rng, fmt, m, k)
    sets = ceil_div(ROTATE, m * k)
    weights = [bench.ops.weights(fmt, raw, rows=m, row=False) for _ in range(sets)]
    out = bench.ops.buffer(4 * m * n)
    padded = ceil_div(n, WIDE.bn) * WIDE.bn * k
    room = (bench.ops.buffer(padded), bench.ops.buffer(padded // 8))
    found, work = [], 2.0 * m * n * k
    for variant in variants:
        if variant == "mmq" and fmt == "Q3_K":
            continue
        _, operand = bench.operand(rng, n, k, "mmq" if variant == "mmq" else "mmvq")

        def launch(w, variant=variant, operand=operand, bare=False):
            return lambda: bench.ops._tile_product(variant, w, operand, None, 1, out, n, None, bare=bare, room=room)

        bare = None
        if variant == "w11":
            us, spread = bench.time([launch(w, bare=True) for w in weights])
            bare = work / us / 1e6
            found.append(Row("w11 bare", fmt, n, us, spread, bare, None, bare / ceiling if ceiling else None))
        us, spread = bench.time([launch(w) for w in weights])
        tops = work / us / 1e6
        found.append(
            Row(variant, fmt, n, us, spread, tops, None, tops / ceiling if ceiling else None, tops / bare if bare else None)
        )
    for w in weights:
        bench.ops.free_weights(w)
    bench.ops.release()
    return found


def row_rows(bench: Bench, fmt: str, m: int, k: int, counts, read_tbs: float) -> list[Row]:
    """The row products at small batches: alone, and with the operand's quantisation in front."""
    rng = np.random.default_rng(6)
    raw = random_weights(rng, fmt, m, k)
    sets = ceil_div(ROTATE, raw.size)
    weights = [bench.ops.weights(fmt, raw, rows=m, tile=False) for _ in range(sets)]
    found = []
    for n in counts:
        x, operand = bench.operand(rng, n, k)
        out = bench.ops.buffer(4 * m * n)

        def alone(w, operand=operand, out=out, n=n):
            return lambda: bench.ops._row_product(w, operand, None, 1, out, n, None)

        def quantised(w, x=x, operand=operand, out=out, n=n):
            def run():
                blocks = n * k // 32
                args = [x, ctypes.c_int64(blocks), operand.codes, operand.d, operand.s]
                bench.ops.launch("e0_quantise_mmvq", ceil_div(blocks, 4), 128, args)
                bench.ops._row_product(w, operand, None, 1, out, n, None)

            return run

        for name, make in (("mmvq", alone), ("quantise+mmvq", quantised)):
            us, spread = bench.time([make(w) for w in weights], rounds=4)
            tbs = raw.size / us / 1e6
            found.append(Row(name, fmt, n, us, spread, 2.0 * m * n * k / us / 1e6, tbs, tbs / read_tbs))
    for w in weights:
        bench.ops.free_weights(w)
    bench.ops.release()
    return found


def show(rows: list[Row]) -> None:
    print(f"{'kernel':16}{'weights':9}{'N':>6}{'us':>10}{'spread':>8}{'TOPS':>8}{'TB/s':>7}{'share':>8}{'of bare':>8}")
    for r in rows:
        cells = [
            f"{r.tops:8.1f}" if r.tops else " " * 8,
            f"{r.weights_tbs:7.2f}" if r.weights_tbs else " " * 7,
            f"{r.share:8.1%}" if r.share else " " * 8,
            f"{r.bare:8.1%}" if r.bare else "",
        ]
        print(f"{r.kernel:16}{r.fmt:9}{r.n:6}{r.us:10.2f}{r.spread:8.1%}{''.join(cells)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--m", type=int, default=4096)
    parser.add_argument("--n", type=int, nargs="+", default=[4096, 512])
    parser.add_argument("--k", type=int, default=8192)
    parser.add_argument("--only", choices=("tile", "row"))
    parser.add_argument("--ceiling", type=float, help="int8 ceiling in TOPS measured before, instead of measuring it again")
    parser.add_argument("--image", help="a cubin of kernels/cuda/all.h, instead of compiling here")
    parser.add_argument("--json")
    given = parser.parse_args()
    try:
        image = Path(given.image).read_bytes() if given.image else None
        bench = Bench(given.device, image=image)
    except Absent as error:
        print(f"not measured: {error}")
        return 3
    print(bench.runtime.devices()[bench.index])
    rows: list[Row] = []
    ceiling = read = None
    if given.only != "row":
        ceiling = given.ceiling or vendor_int8(given.m, 4096, given.k)
        print(f"int8 ceiling (vendor): {f'{ceiling:.0f} TOPS' if ceiling else 'not measured, no torch'}", flush=True)
        for n in given.n:
            for fmt in ("Q8_0", "IQ4_NL", "Q3_K"):
                found = tile_rows(bench, fmt, given.m, n, given.k, ceiling)
                show(found)
                rows += found
    if given.only != "tile":
        read = {size: read_only(bench, size << 20) for size in (16, 32, 256)}
        print("read-only kernel, TB/s: " + ", ".join(f"{size} MiB a launch {tbs:.2f}" for size, tbs in read.items()), flush=True)
        for fmt in ("Q8_0", "IQ4_NL", "Q3_K"):
            found = row_rows(bench, fmt, given.m, given.k, (1, 8), read[32 if fmt == "Q8_0" else 16])
            show(found)
            rows += found
    if given.json:
        with open(given.json, "w") as out:
            json.dump(
                {
                    "device": asdict(bench.runtime.devices()[bench.index]),
                    "int8_ceiling_tops": ceiling,
                    "read_only_tbs": read,
                    "rows": [asdict(r) for r in rows],
                },
                out,
                indent=1,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

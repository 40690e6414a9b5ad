"""Every kernel of a device against the CPU build of the same source, over all cases; also a command:

python -m tests.runtime.device_bits cuda:0 [--only w11] [--small]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from edge0verify.runtime.ops import DeviceBlocks, DeviceOps
from tests.runtime.cases import VARIANTS, activations, differing, rows_cases
from tests.runtime.phase import Phase


@dataclass(frozen=True)
class Outcome:
    """One tensor of one case: how many of its elements differ in their bits."""

    kernel: str
    case: str
    tensor: str
    elements: int
    differ: int
    digest: str = ""


def digest(a: np.ndarray) -> str:
    """First 16 hex digits of the sha256 of the bits, every NaN as the one quiet NaN."""
    if a.dtype.kind == "f":
        a = np.where(np.isnan(a), np.array(np.nan, a.dtype), a)
    return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()[:16]


def host_blocks(ops: DeviceOps, b: DeviceBlocks) -> dict[str, np.ndarray]:
    scale = np.float32 if b.quantiser == "mmq" else np.float16
    out = {"codes": ops.download(b.codes, np.int8, (b.n, b.k)), "d": ops.download(b.d, scale, (b.n, b.k // 32))}
    if b.s is not None:
        out["s"] = ops.download(b.s, np.float16, (b.n, b.k // 32))
    return out


def outcomes(kernel: str, case: str, got: dict[str, np.ndarray], want: dict[str, np.ndarray | None]):
    for tensor, value in got.items():
        yield Outcome(kernel, case, tensor, value.size, differing(value, want[tensor]), digest(value))


def quantiser_outcomes(ops: DeviceOps, phase: Phase, rows: int):
    x = activations(np.random.default_rng(1), rows, 96, extreme=True)
    for name in ("mmvq", "mmq"):
        got = host_blocks(ops, ops.quantise(name, ops.upload(x), *x.shape))
        yield from outcomes(f"quantise_{name}", f"{rows}x96", got, dict(zip(("codes", "d", "s"), phase.quantise(name, x))))
    gate, up = (
        activations(np.random.default_rng(2), rows, 64, extreme=True),
        activations(np.random.default_rng(3), rows, 64, extreme=False),
    )
    for name in ("mmvq", "mmq"):
        blocks, h = ops.swiglu(name, ops.upload(gate), ops.upload(up), rows, 64, rows=True)
        got = {"h": ops.download(h, np.float32, gate.shape), **host_blocks(ops, blocks)}
        with np.errstate(all="ignore"):
            want = phase.swiglu(name, gate, up)
        yield from outcomes(f"swiglu_{name}", f"{rows}x64", got, dict(zip(("h", "codes", "d", "s"), want)))
    count = rows * 256
    x = np.random.default_rng(4).integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    x[: count // 2] = np.linspace(-105, 90, count // 2)
    yield from outcomes(
        "exp", str(count), {"e": ops.download(ops.exp(ops.upload(x), count), np.float32, x.shape)}, {"e": phase.exp(x)}
    )
    ops.release()


def sum_outcomes(ops: DeviceOps, phase: Phase):
    rng = np.random.default_rng(3)
    ids = np.stack([rng.permutation(16)[:4] for _ in range(9)]).astype(np.int32)
    y, weights = rng.standard_normal((36, 33)).astype(np.float32), rng.random((9, 4)).astype(np.float32)
    for order in ("route", "expert-id", "f64"):
        got = ops.expert_sum(order, ops.upload(y), ops.upload(weights), ops.upload(ids), tokens=9, k=4, width=33)
        yield from outcomes(
            f"sum_{order}",
            "9x4x33",
            {"yl": ops.download(got, np.float32, (9, 33))},
            {"yl": phase.expert_sum(order, y, weights, ids)},
        )
    ops.release()


def rows_outcomes(ops: DeviceOps, phase: Phase, cases, only: str | None = None):
    for case in cases:
        raw, x, ids = case.build()
        weights = ops.weights(case.fmt, raw, rows=case.m, experts=case.experts)
        for variant in VARIANTS[case.fmt]:
            if only and variant != only:
                continue
            name = "mmq" if variant == "mmq" else "mmvq"
            codes, d, _ = phase.quantise(name, x)
            operand = DeviceBlocks(name, ops.upload(codes), ops.upload(d), None, *x.shape)
            before = ops.launches().get(f"{variant}/{case.fmt}", 0)
            got = ops.rows(
                variant,
                weights,
                operand,
                n=case.n,
                ids=None if ids is None else ops.upload(ids),
                div=case.slots,
                key=f"{variant}/{case.fmt}",
            )
            host = ops.download(got, np.float32, (case.n, case.m))
            want = phase.rows(variant, case.fmt, raw, codes, d, ids, m=case.m, n=case.n, experts=case.experts, slots=case.slots)
            label = f"{case.m}x{case.n}x{case.k} e{case.experts}{' extreme' if case.extreme else ''}"
            yield from outcomes(f"rows_{variant}_{case.fmt}", label, {"rows": host}, {"rows": want})
            yield Outcome(
                f"rows_{variant}_{case.fmt}", label, "launches", 1, int(ops.launches()[f"{variant}/{case.fmt}"] != before + 1)
            )
            ops.release()
        ops.free_weights(weights)


def graph_outcomes(ops: DeviceOps, runtime):
    """A captured graph with one product, replayed three times: launches counted on the device, rows as from a plain launch."""
    case = rows_cases()[1]
    raw, x, _ = case.build()
    stream = runtime.stream(ops.device)
    captured = type(ops)(runtime, ops.device, stream=stream, image=ops.image)
    weights = captured.weights(case.fmt, raw, rows=case.m)
    operand = captured.quantise("mmvq", captured.upload(x), *x.shape)
    plain = captured.download(captured.rows("w11", weights, operand, key="graph"), np.float32, (case.n, case.m))
    runtime.synchronise(ops.device, stream)
    held, captured._used = captured._used, []
    for whole in held:  # the warm-up's buffers of these sizes are used again, so that the capture allocates nothing
        captured._free.setdefault(whole.nbytes, []).append(captured.runtime.allocate(ops.device, whole.nbytes))
    captured.reset_launches()
    runtime.begin_capture(stream)
    out = captured.rows("w11", weights, operand, key="graph")
    graph = runtime.end_capture(stream)
    for _ in range(3):
        runtime.launch_graph(graph, stream)
    replayed = captured.download(out, np.float32, (case.n, case.m))
    yield Outcome("graph replay", "w11", "rows", plain.size, differing(replayed, plain))
    yield Outcome("graph replay", "w11", "launches", 1, int(captured.launches() != {"graph": 3}))


def all_outcomes(ops: DeviceOps, phase: Phase, *, small: bool = False, only: str | None = None):
    """small: at most 33 weight rows and 9 tokens of the dense cases, for the emulator."""
    cases = rows_cases()
    if small:
        cases = [replace(c, m=min(c.m, 33), n=min(c.n, 9 * c.slots), k=min(c.k, 1056 if c.fmt != "Q3_K" else 768)) for c in cases]
    if not only:
        yield from quantiser_outcomes(ops, phase, 13 if small else 300)
        yield from sum_outcomes(ops, phase)
    yield from rows_outcomes(ops, phase, cases, only)


def main() -> int:
    from edge0verify.runtime.detect import open_device

    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only")
    parser.add_argument("--tuned", action="store_true", help="the tuned CUDA kernels where there are any")
    parser.add_argument("--image", help="a cubin of the kernels, instead of compiling here")
    parser.add_argument("--wide", action="store_true", help="with --tuned: the wide tile for every tile product")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", help="write the digests and the device's description to this JSON file")
    parser.add_argument("--quiet", action="store_true", help="differing tensors and the total alone")
    given = parser.parse_args()
    runtime, index = open_device(given.device)
    print(runtime.devices()[index])
    ops = DeviceOps(runtime, index)
    if given.tuned:
        from edge0verify.runtime.tuned import NARROW, WIDE, TunedOps

        image = Path(given.image).read_bytes() if given.image else None
        ops = TunedOps(runtime, index, image=image, tile=WIDE if given.wide else NARROW)
    bad = total = count = 0
    digests: dict[str, str] = {}
    for o in all_outcomes(ops, Phase(given.threads), small=given.small, only=given.only):
        if o.differ or not given.quiet:
            print(f"{o.kernel:22} {o.case:24} {o.tensor:9} {o.elements:8} differ {o.differ}", flush=True)
        if o.digest:
            digests[f"{o.kernel} {o.case} {o.tensor}"] = o.digest
        bad, total, count = bad + (o.differ > 0), total + o.elements, count + 1
    if hasattr(runtime, "begin_capture"):
        for o in graph_outcomes(ops, runtime):
            print(f"{o.kernel:22} {o.case:24} {o.tensor:9} {o.elements:8} differ {o.differ}")
            bad += o.differ > 0
    for name, reason in getattr(ops, "fell_back", {}).items():
        print(f"{name}: portable kernel at times, {reason}")
    print(f"{count} tensors, {total:,} elements: {bad} tensors differ")
    if given.save:
        about = {k: v for k, v in asdict(runtime.devices()[index]).items() if k not in ("pci", "index")}
        if runtime.name == "gfx11emu":
            about["driver"] = "tinygrad RDNA3 emulator"
        record = {"device": about, "kernels": "tuned" if given.tuned else "portable", "digests": digests}
        with open(given.save, "w") as out:
            json.dump(record, out, indent=1)
            out.write("\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""Digests of every tensor of the four stages of a real prompt, from a device's captured graphs; also a command:

python -m tests.runtime.stage_bits cuda:0 --save golden/stage-bits-h200.json
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from edge0verify.engine import Engine
from edge0verify.model import encode, load_model, prompt
from edge0verify.numerics.blocks import Blocks
from edge0verify.variants.kernels import Kernels

VARIANTS = ("ref", "mmvq", "mmq", "w11")
PROMPT, TOKENS, CHUNK = "code", 80, 32
"""Two chunks of one size and one of another, rows beyond a tile of 64 pairs."""


def stage_digests(kernels: Kernels) -> dict[str, str]:
    """'w11 a-h' -> first 16 hex digits of the sha256 over all layers, a chunk at a time; 'w11 logits' at the end."""
    model, tokens = load_model(), encode(prompt(PROMPT))[:TOKENS]
    found: dict[str, str] = {}
    for name in VARIANTS:
        sums: dict[str, hashlib._Hash] = {}

        def tap(layer, tensor: str, first: int, value: np.ndarray | Blocks, sums=sums) -> None:
            parts = (value.codes, value.d, value.s) if isinstance(value, Blocks) else (value,)
            digest = sums.setdefault(tensor, hashlib.sha256())
            for part in parts:
                if part is not None:
                    digest.update(np.ascontiguousarray(part).tobytes())

        engine = Engine(model, kernels=kernels, variants=dict.fromkeys("DAU", name), threads=2, chunk=CHUNK)
        logits = engine.prefill(tokens, tap=tap).logits_last
        found |= {f"{name} {tensor}": digest.hexdigest()[:16] for tensor, digest in sums.items()}
        found[f"{name} logits"] = hashlib.sha256(logits.tobytes()).hexdigest()[:16]
    return found


def main() -> int:
    from edge0verify.variants.captured import captured_on

    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    kernels = captured_on(given.device)
    got, want = stage_digests(kernels), stage_digests(Kernels(threads=2))
    differ = sorted(key for key in want if got.get(key) != want[key])
    print(f"{kernels.isa}: {len(got)} digests, {kernels.replays} graph replays")
    print(f"{len(differ)} differ from the host's {differ or ''}")
    if given.save:
        about = {k: v for k, v in asdict(kernels.here).items() if k not in ("pci", "index")}
        record = {"device": about, "taken": "inside captured graphs", "prompt": PROMPT, "tokens": TOKENS, "digests": got}
        given.save.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())

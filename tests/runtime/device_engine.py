"""The whole engine with a device's kernels against the host's: `python -m tests.runtime.device_engine cuda:0 [--rows N]`.

Every prompt through every variant of D, A and U: logits of the last position bit for bit, and the launches that the device counted.
"""

import argparse
import sys
import time

import numpy as np

from edge0verify.engine import Engine
from edge0verify.model import load_model, tokenizer
from edge0verify.model.prompts import prompt
from edge0verify.variants.device_kernels import kernels_on
from edge0verify.variants.kernels import Kernels


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("--rows", type=int, default=400, help="tokens of the long prompt")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    model = load_model()
    device, host = kernels_on(given.device), Kernels(threads=given.threads)
    print(device.isa)
    texts = {name: tokenizer.encode(prompt(name), bos=True) for name in ("p1", "p2", "p3", "p4", "long")}
    texts["long"] = texts["long"][: given.rows]
    bad = 0
    for name in ("mmvq", "mmq", "w11", "ref"):
        variants = dict.fromkeys(("D", "A", "U"), name)
        for text, tokens in texts.items():
            device.reset_launches()
            started = time.perf_counter()
            got = Engine(model, kernels=device, variants=variants, threads=given.threads).prefill(tokens)
            seconds = time.perf_counter() - started
            want = Engine(model, kernels=host, variants=variants, threads=given.threads).prefill(tokens)
            differ = int((got.logits_last.view(np.uint32) != want.logits_last.view(np.uint32)).sum())
            ran = {key: n for key, n in device.launches().items() if not key.startswith("linear")}
            wrong = sorted(key for key in ran if f"/{name}/" not in key)
            bad += differ > 0 or bool(wrong) or len(ran) != 4
            print(
                f"{name:5} {text:5} {len(tokens):5} tokens  logits differing {differ}  {seconds:6.2f} s  {ran} {wrong or ''}",
                flush=True,
            )
    print("equal" if not bad else f"{bad} runs differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

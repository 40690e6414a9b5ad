"""Prefill of the long prompt: wall and processor seconds of the engine, and of PyTorch where it is installed.

    python benchmarks/bench_prefill.py [--threads N] [--repeat N] [--isa NAME] [--variant NAME ...]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from edge0verify.engine import Engine, native
from edge0verify.model import Model, encode, load_model, prompt
from edge0verify.variants.kernels import Kernels


def processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(run, repeat: int) -> tuple[float, float]:
    """Least wall seconds of `repeat` runs, and the processor seconds of that run."""
    best = (float("inf"), 0.0)
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), processor_seconds()
        run()
        best = min(best, (time.perf_counter() - wall, processor_seconds() - cpu))
    return best


def torch_prefill(model: Model, ids: np.ndarray, threads: int):
    """The same forward pass in float32 PyTorch, decoded weights: a function to time, or None without PyTorch."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:
        return None
    torch.set_num_threads(threads)
    c = model.config
    w = {name: torch.from_numpy(np.array(t.values())) for name, t in model.tensors.items()}
    tokens = torch.from_numpy(ids.astype(np.int64))
    inv = torch.tensor([c.rope_theta ** (-2 * i / c.head_dim) for i in range(c.head_dim // 2)], dtype=torch.float64)
    angle = torch.arange(len(ids), dtype=torch.float64)[:, None] * inv
    cos, sin = angle.cos().float(), angle.sin().float()

    def rms(x, weight):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + c.eps) * weight

    def heads(x, n):
        return x.view(len(x), n, c.head_dim).transpose(0, 1)

    def rope(x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    @torch.inference_mode()
    def run():
        x = w["tok_embd.weight"][tokens]
        for layer in range(c.layers):
            def part(name, layer=layer):
                return w[f"blk.{layer}.{name}.weight"]

            h = rms(x, part("attn_norm"))
            q, k, v = (heads(F.linear(h, part(p)), n) for p, n in
                       (("attn_q", c.heads), ("attn_k", c.kv_heads), ("attn_v", c.kv_heads)))
            k, v = (t.repeat_interleave(c.heads // c.kv_heads, 0) for t in (rope(k), v))
            a = F.scaled_dot_product_attention(rope(q)[None], k[None], v[None], is_causal=True, scale=c.attn_scale)[0]
            x = x + F.linear(a.transpose(0, 1).reshape(len(x), -1), part("attn_output"))
            h = rms(x, part("ffn_norm"))
            top, chosen = F.linear(h, part("ffn_gate_inp")).softmax(-1).topk(c.k)
            top = top / top.sum(-1, keepdim=True)
            xl = F.linear(h, w["latent_down.weight"])
            y = torch.zeros_like(xl)
            for e in range(c.experts):
                row, slot = (chosen == e).nonzero(as_tuple=True)
                t = xl[row]
                act = F.silu(F.linear(t, part("ffn_gate_exps")[e])) * F.linear(t, part("ffn_up_exps")[e])
                y.index_add_(0, row, F.linear(act, part("ffn_down_exps")[e]) * top[row, slot, None])
            x = x + F.linear(y, w["latent_up.weight"])
        return F.linear(rms(x[-1:], w["output_norm.weight"]), w["output.weight"])

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=native.default_threads())
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--isa", default=native.isa(), choices=native.usable_isas())
    parser.add_argument("--variant", nargs="*", default=["mmvq", "mmq", "w11"])
    options = parser.parse_args()
    native.set_isa(options.isa)
    model, ids = load_model(), encode(prompt("long"))
    print(f"prefill of {len(ids)} tokens, {options.threads} threads, {options.isa}, least of {options.repeat} runs")
    engines = {f"D, A, U {name}": Engine(model, variants=dict.fromkeys("DAU", name), threads=options.threads,
                                         kernels=Kernels(isa=options.isa, threads=options.threads)) for name in options.variant}
    engines["float mode"] = Engine(model, float_mode=True, threads=options.threads)
    logits = {}
    for name, engine in engines.items():
        wall, cpu = measure(lambda engine=engine: engine.prefill(ids), options.repeat)
        logits[name] = engine.prefill(ids).logits_last
        print(f"{name:16} {wall:6.2f} s wall {cpu:6.2f} s processor {len(ids) / wall:9.0f} tokens/s")
    run = torch_prefill(model, ids, options.threads)
    if run is None:
        print("PyTorch: not run (torch is not installed)")
        return
    wall, cpu = measure(run, options.repeat)
    print(f"{'PyTorch float32':16} {wall:6.2f} s wall {cpu:6.2f} s processor {len(ids) / wall:9.0f} tokens/s")
    print(f"largest difference of its last logits to the float mode's: {np.abs(run().numpy()[0] - logits['float mode']).max():.2g}")


if __name__ == "__main__":
    main()

"""Which tensors a model must have: name, shape, role, and the formats each role may be stored in."""

from __future__ import annotations

from dataclasses import dataclass

from edge0verify.model.config import Config

QUANTISED = ("Q8_0", "Q4_0", "Q3_K", "IQ4_NL")
BLOCK = {"Q8_0": (32, 34), "Q4_0": (32, 18), "Q3_K": (256, 110), "IQ4_NL": (32, 18), "BF16": (1, 2), "F32": (1, 4)}
"""Format: (values, bytes) of one block."""

ALLOWED = {
    "projection": (*QUANTISED, "BF16", "F32"),
    "attention": ("Q8_0", "BF16", "F32"),
    "expert": (*QUANTISED, "BF16", "F32"),
    "router": ("F32",),
    "embedding": ("BF16", "F32"),
    "norm": ("F32", "BF16"),
}
"""Role: formats that the engine can run.  Attention and mtp.fc follow one contract, which is declared for Q8_0."""


@dataclass(frozen=True)
class Planned:
    """One tensor a model must have.  `shape` is row major, the dot's length last."""

    name: str
    shape: tuple[int, ...]
    role: str

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats it may be stored in."""
        return ALLOWED[self.role]


def layer_prefix(layer: int | str) -> str:
    """Prefix of a layer's tensor names: 'blk.3.' or 'mtp.blk.'."""
    return "mtp.blk." if layer == "mtp" else f"blk.{layer}."


def projection_plan(c: Config) -> tuple[Planned, ...]:
    """The shared pair that one device's layers have in common: latent_down is D, latent_up is U."""
    return (
        Planned("latent_down.weight", (c.latent, c.hidden), "projection"),
        Planned("latent_up.weight", (c.hidden, c.latent), "projection"),
    )


def layer_plan(c: Config, layer: int | str) -> tuple[Planned, ...]:
    """The tensors of one layer, the drafter's ('mtp') included."""
    p = layer_prefix(layer)
    return (
        Planned(p + "attn_norm.weight", (c.hidden,), "norm"),
        Planned(p + "attn_q.weight", (c.q_rows, c.hidden), "attention"),
        Planned(p + "attn_k.weight", (c.kv_rows, c.hidden), "attention"),
        Planned(p + "attn_v.weight", (c.kv_rows, c.hidden), "attention"),
        Planned(p + "attn_output.weight", (c.hidden, c.q_rows), "attention"),
        Planned(p + "ffn_norm.weight", (c.hidden,), "norm"),
        Planned(p + "ffn_gate_inp.weight", (c.experts, c.hidden), "router"),
        Planned(p + "ffn_gate_exps.weight", (c.experts, c.ff, c.latent), "expert"),
        Planned(p + "ffn_up_exps.weight", (c.experts, c.ff, c.latent), "expert"),
        Planned(p + "ffn_down_exps.weight", (c.experts, c.latent, c.ff), "expert"),
    )


def tensor_plan(c: Config) -> tuple[Planned, ...]:
    """Every tensor of the model, in the order in which a forward pass meets them."""
    plan = [Planned("tok_embd.weight", (c.vocab, c.hidden), "embedding"), *projection_plan(c)]
    for layer in range(c.layers):
        plan += layer_plan(c, layer)
    plan += [Planned("output_norm.weight", (c.hidden,), "norm"), Planned("output.weight", (c.vocab, c.hidden), "embedding")]
    if c.mtp_layers:
        plan += [
            Planned("mtp.norm_h.weight", (c.hidden,), "norm"),
            Planned("mtp.norm_e.weight", (c.hidden,), "norm"),
            Planned("mtp.fc.weight", (c.hidden, 2 * c.hidden), "attention"),
            *layer_plan(c, "mtp"),
            Planned("mtp.output_norm.weight", (c.hidden,), "norm"),
        ]
    return tuple(plan)

"""What a storage format loses by itself, so that an error can be set beside it: 0.095 is much for Q8_0 and nothing for NVFP4.

Formats that have an encoder are encoded and decoded; the others are rounded to their grid with a plain choice of scale, which a
good encoder betters by a few per cent.
"""

from __future__ import annotations

import numpy as np

from edge0verify.numerics import formats
from edge0verify.numerics.rounding import to_f16
from edge0verify.numerics.small_floats import E2M1_VALUES, E4M3_VALUES, e4m3_encode

SCALE_BLOCK = {"Q8_0": 32, "Q8_1": 32, "Q4_0": 32, "IQ4_NL": 32, "Q3_K": 16, "NVFP4": 16}
"""Values that share a scale."""


def relative(found: np.ndarray, reference: np.ndarray) -> float:
    """|found - reference| / |reference|; inf where found is not finite."""
    size = float(np.linalg.norm(reference))
    gap = float(np.linalg.norm(np.asarray(found, np.float64) - reference))
    return (gap / size if size > 0 else (0.0 if gap == 0 else np.inf)) if np.isfinite(gap) else np.inf


def expected_loss(fmt: str, reference: np.ndarray) -> float | None:
    """Relative L2 that storing reference [rows, K] in `fmt` costs; None for a format that is not known here."""
    x = np.asarray(reference, np.float32)
    if fmt in ("F32",):
        return 0.0
    if fmt in ("Q8_0", "Q8_1", "Q8_K", "Q4_0", "BF16"):
        return relative(formats.decode(fmt, formats.encode(fmt, x)), reference)
    if fmt == "F16":
        return relative(to_f16(x).astype(np.float64), reference)
    if fmt not in _GRIDS or x.shape[-1] % SCALE_BLOCK[fmt]:
        return None
    grid, ends = _GRIDS[fmt]
    cut = x.reshape(-1, SCALE_BLOCK[fmt]).astype(np.float64)
    extreme = np.take_along_axis(cut, np.abs(cut).argmax(axis=1)[:, None], axis=1)
    best = np.full(cut.shape, np.inf)
    for end in ends:
        scale = _stored_scale(fmt, extreme / end)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.nan_to_num(cut / scale)
        rounded = grid[np.abs(ratio[:, :, None] - grid).argmin(axis=2)] * scale
        better = np.square(rounded - cut).sum(axis=1) < np.square(best - cut).sum(axis=1)
        best[better] = rounded[better]
    return relative(best.reshape(x.shape), reference)


def _stored_scale(fmt: str, scale: np.ndarray) -> np.ndarray:
    if fmt != "NVFP4":
        return to_f16(scale).astype(np.float64)
    scale = np.abs(scale)
    whole = float(scale.max()) / 448 or 1.0  # the tensor's own f32 scale
    return E4M3_VALUES[e4m3_encode((scale / whole).astype(np.float32))].astype(np.float64) * whole


_GRIDS = {
    "IQ4_NL": (formats.IQ4_NL_VALUES.astype(np.float64), (-127.0, 113.0)),
    "Q3_K": (np.arange(-4, 4, dtype=np.float64), (-4.0, 3.0)),
    "NVFP4": (np.unique(E2M1_VALUES).astype(np.float64), (6.0,)),
}
"""The values of a block at scale 1, and which of them its largest value is laid on."""

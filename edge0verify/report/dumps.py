"""A dump as text: manifest, one line per stored array, what is missing."""

from __future__ import annotations

from typing import Any

from tabulate import tabulate

from edge0verify.dump.summary import ArrayStatistics, Summary
from edge0verify.records.manifest import Manifest
from edge0verify.records.verdict import plain
from edge0verify.report.tables import figure

HEADERS = ("array", "dtype", "shape", "stored", "min", "max", "mean", "std", "not finite", "codes -128 | -127 | 0 | 127")


def manifest_lines(m: Manifest) -> list[str]:
    """Label and value of what a reader asks first; unknown parts are left out."""
    commit = m.engine.commit and m.engine.commit[:12] + (" with changes" if m.engine.dirty else "")
    engine = " ".join(part for part in (m.engine.name, commit and f"commit {commit}") if part)
    device = ", ".join(part for part in (m.device.name, m.device.arch, m.device.driver, m.device.link) if part)
    flags = " ".join(f"{name}={value}" for name, value in m.flags.items() if value is not None)
    prompt = None if m.prompt.sha256 is None else f"{m.prompt.tokens} tokens, sha256 {m.prompt.sha256[:16]}"
    found = {
        "engine": engine,
        "binary": m.engine.binary_sha256 and f"sha256 {m.engine.binary_sha256[:16]}",
        "kernels": m.kernel_source_sha256 and f"sha256 {m.kernel_source_sha256[:16]}",
        "model": m.model_sha256 and f"sha256 {m.model_sha256[:16]}",
        "prompt": prompt,
        "variants": ", ".join(f"{stage} {name}" for stage, name in m.variants.items()) or None,
        "flags": flags or ("all unset" if m.flags else None),
        "device": device,
        "split": " | ".join(", ".join(map(str, part)) for part in m.split) or None,
        "launches": _launches(m),
        "seed": m.seed,
        "level": m.level,
        "captured": f"{m.signature.rows} rows, layers {_list(m.signature.layers)}",
        "time": m.time,
    }
    return [f"{label:9} {value}" for label, value in found.items() if value is not None]


def _launches(m: Manifest) -> str:
    if m.launches is None:
        return "not counted: whether a variant engaged is not known"
    return ", ".join(f"{key} {n}" for key, n in m.launches.items()) or "none"


def _list(layers) -> str:
    return ", ".join(map(str, layers)) or "none"


def _line(found: ArrayStatistics) -> list[str]:
    info = found.info
    extremes = "" if found.code_extremes is None else " | ".join(str(n) for n in found.code_extremes.values())
    return [
        info.path,
        str(info.dtype),
        " x ".join(map(str, info.shape)),
        info.stored,
        *(figure(value, 4) for value in (found.minimum, found.maximum, found.mean, found.deviation)),
        "-" if found.nonfinite is None else str(found.nonfinite),
        extremes,
    ]


def summary_text(summary: Summary) -> str:
    """Everything `show` prints, without a final newline."""
    table = tabulate(
        [_line(found) for found in summary.arrays], HEADERS, tablefmt="simple", disable_numparse=True,
        colalign=("left", "left", "left", "left", *["right"] * 5, "left"),
    )
    parts = ["\n".join([f"{summary.path}: {summary.file_bytes} bytes", *manifest_lines(summary.manifest)]), table]
    if summary.missing:
        names = ", ".join(f"layer {layer} {tensor}" for layer, tensor in summary.missing)
        parts.append(f"missing, though the manifest promises them: {names}")
    return "\n\n".join(parts)


def summary_json(summary: Summary) -> dict[str, Any]:
    """The same as JSON values."""
    arrays = [
        {
            "path": a.info.path,
            "layer": a.info.layer,
            "tensor": a.info.tensor,
            "part": a.info.part,
            "dtype": str(a.info.dtype),
            "shape": list(a.info.shape),
            "stored": a.info.stored,
            "sha256": a.info.sha256,
            "finite": a.finite,
            "nonfinite": a.nonfinite,
            "min": a.minimum,
            "max": a.maximum,
            "mean": a.mean,
            "std": a.deviation,
            "codes": a.code_extremes,
        }
        for a in summary.arrays
    ]
    return plain(
        {
            "path": summary.path,
            "bytes": summary.file_bytes,
            "manifest": summary.manifest.to_json(),
            "arrays": arrays,
            "missing": [list(pair) for pair in summary.missing],
        }
    )

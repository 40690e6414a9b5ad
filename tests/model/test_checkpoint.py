"""The unquantised weights path: a folder of safetensors, and a GGUF file without quantised tensors."""

import json

import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType as T
from gguf import GGUFReader
from safetensors.numpy import save_file

from edge0verify.model import DEFAULT_MODEL, load_model, tensor_plan
from edge0verify.model.prompts import DATA
from edge0verify.records.errors import InputError
from tests.model.faults import rewrite

# Largest relative error of a tensor that each format may have against the weights it was made from.
ERROR = {"Q3_K": 0.17, "IQ4_NL": 0.09, "Q8_0": 0.007, "BF16": 0.004, "F32": 0.0}


def as_bf16(values):
    return np.ascontiguousarray(values).astype(ml_dtypes.bfloat16)


@pytest.fixture(scope="module")
def values():
    """The embedded model's decoded weights, which stand in for a checkpoint's."""
    return {name: t.values() for name, t in load_model().tensors.items()}


@pytest.fixture
def folder(tmp_path, values):
    """A checkpoint of two shards, routers float32 and the rest bfloat16."""
    (tmp_path / "config.json").write_bytes((DATA / "config.json").read_bytes())
    names = sorted(values)
    for i, part in enumerate((names[:40], names[40:]), 1):
        made = {n: np.array(values[n]) if "ffn_gate_inp" in n else as_bf16(values[n]) for n in part}
        save_file(made, tmp_path / f"m-0000{i}-of-00002.safetensors")
    return tmp_path


def relative_error(a, b):
    return float(np.linalg.norm(a.astype(np.float64) - b) / np.linalg.norm(a.astype(np.float64)))


def test_safetensors_folder(folder, values):
    model, quantised = load_model(folder), load_model()
    assert model.config == quantised.config           # config.json and GGUF metadata say the same
    assert not model.quantised and quantised.quantised
    assert len(model.sha256) == 64 and model.sha256 != quantised.sha256
    for p in tensor_plan(model.config):
        t = model.tensor(p.name)
        assert t.shape == p.shape and t.fmt == ("F32" if p.role == "router" else "BF16")
        assert not t.raw.flags.writeable
        wanted = values[p.name] if t.fmt == "F32" else as_bf16(values[p.name]).astype(np.float32)
        assert np.array_equal(t.values(), wanted)
        assert relative_error(t.values(), quantised.tensor(p.name).values()) <= max(0.004, ERROR[quantised.tensor(p.name).fmt])


def test_a_wrong_tensor_is_far_off(values):
    """Negative control of the tolerance above: another layer's weights are nowhere near."""
    assert relative_error(values["blk.0.ffn_gate_exps.weight"], values["blk.1.ffn_gate_exps.weight"]) > 1


def test_bf16_gguf(tmp_path, values):
    def plain(name, data, kind):
        if kind == T.F32:
            return [(name, data, kind)]
        raw = as_bf16(values[name]).view(np.uint8)
        return [(name, raw, T.BF16)]

    model = load_model(rewrite(DEFAULT_MODEL, tmp_path / "bf16.gguf", tensor=plain))
    assert not model.quantised
    assert {t.fmt for t in model.tensors.values()} == {"BF16", "F32"}
    for name, t in model.tensors.items():
        wanted = values[name] if t.fmt == "F32" else as_bf16(values[name]).astype(np.float32)
        assert np.array_equal(t.values(), wanted)


def test_the_files_own_bytes_decode_as_gguf_decodes_them(values):
    from gguf.quants import dequantize

    for t in GGUFReader(DEFAULT_MODEL).tensors:
        ours = values[t.name]
        theirs = np.asarray(t.data if t.tensor_type == T.F32 else dequantize(t.data, t.tensor_type), np.float32).reshape(ours.shape)
        assert np.array_equal(ours.view(np.uint32), theirs.view(np.uint32)), t.name


def fails(path, *words):
    with pytest.raises(InputError) as e:
        load_model(path)
    assert "\n" not in str(e.value)
    for word in words:
        assert word in str(e.value), str(e.value)


def test_broken_checkpoints(folder, tmp_path, values):
    first, second = sorted(folder.glob("*.safetensors"))
    config = folder / "config.json"
    blob, fields = second.read_bytes(), json.loads(config.read_text())

    second.write_bytes(blob[:-100])
    fails(folder, second.name, "complete safetensors file")
    second.write_bytes(blob[:4])
    fails(folder, second.name, "complete safetensors file")
    second.unlink()
    fails(folder, "it is missing")

    rest = {n: as_bf16(v) for n, v in values.items() if n in sorted(values)[40:] and "ffn_gate_inp" not in n}
    rest |= {n: np.array(v) for n, v in values.items() if n in sorted(values)[40:] and "ffn_gate_inp" in n}
    save_file(rest | {"output.weight": as_bf16(values["output.weight"][:-1])}, second)
    fails(folder, second.name, "output.weight", "expected shape [288, 384]", "found [287, 384]")
    save_file(rest | {"output.weight": values["output.weight"].astype(np.float16)}, second)
    fails(folder, second.name, "output.weight", "expected bfloat16 or float32", "found float16")
    router = "mtp.blk.ffn_gate_inp.weight"
    save_file(rest | {router: as_bf16(values[router])}, second)
    fails(folder, second.name, router, "expected F32 for the router", "found BF16")
    twice = sorted(values)[0]
    save_file(rest | {twice: as_bf16(values[twice])}, second)
    fails(folder, second.name, twice, "expected once", first.name)
    save_file(rest, second)
    load_model(folder)

    config.write_text(json.dumps(fields | {"rope": "norm"}))
    fails(folder, "config.json", "field rope", "expected 'neox'", "found 'norm'")
    config.write_text(json.dumps({k: v for k, v in fields.items() if k != "latent"}))
    fails(folder, "config.json", "field latent", "it is missing")
    config.write_text("{")
    fails(folder, "config.json", "expected JSON")
    config.unlink()
    fails(folder, "config.json", "it is missing")
    fails(tmp_path / "empty", "empty")

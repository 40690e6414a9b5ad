"""Loading the embedded model, and what is said about files that are broken."""

import hashlib
import shutil
import struct

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T
from gguf import GGUFReader

from edge0verify.model import DEFAULT_MODEL, DEFAULT_Q4_PROJECTION, load_model, tensor_plan
from edge0verify.model.layout import read_layout
from edge0verify.records.errors import InputError
from tests.model.faults import rewrite


def test_embedded_model():
    model = load_model()
    c = model.config
    assert (c.hidden, c.layers, c.heads, c.kv_heads, c.head_dim, c.latent, c.ff) == (384, 6, 6, 2, 64, 256, 128)
    assert (c.experts, c.k, c.vocab, c.mtp_layers, c.bos, c.eos) == (16, 4, 288, 1, 256, 257)
    assert c.layer_ids == (0, 1, 2, 3, 4, 5, "mtp")
    assert c.eps == float(np.float32(1e-6)) and c.rope_theta == 10000.0 and c.attn_scale == 0.125
    assert len(model.tensors) == 79 == len(tensor_plan(c))
    assert model.quantised
    assert model.sha256 == hashlib.sha256(DEFAULT_MODEL.read_bytes()).hexdigest()
    assert "31 Q8_0" in model.describe() and "14 Q3_K" in model.describe()


def test_raw_bytes_are_the_files():
    model = load_model()
    blob = DEFAULT_MODEL.read_bytes()
    reader = {t.name: t for t in GGUFReader(DEFAULT_MODEL).tensors}
    for entry in read_layout(DEFAULT_MODEL):
        t = model.tensor(entry.name)
        assert entry.offset == reader[entry.name].data_offset and entry.nbytes == reader[entry.name].n_bytes
        assert t.raw.tobytes() == blob[entry.offset : entry.offset + entry.nbytes]
        assert not t.raw.flags.writeable and t.raw.flags.c_contiguous
    assert model.layer(2, "ffn_gate_exps").raw.shape == (16, 128, 110)
    assert model.layer("mtp", "ffn_down_exps").raw.shape == (16, 256, 72)
    assert model.tensor("tok_embd.weight").raw.dtype == np.uint16
    assert model.tensor("tok_embd.weight").values().shape == (288, 384)


def test_projection_is_laid_over():
    plain, over = load_model(), load_model(projection=DEFAULT_Q4_PROJECTION)
    assert over.tensor("latent_down.weight").fmt == "Q4_0" and plain.tensor("latent_down.weight").fmt == "Q8_0"
    assert over.tensor("blk.0.attn_q.weight").raw.tobytes() == plain.tensor("blk.0.attn_q.weight").raw.tobytes()
    digests = [hashlib.sha256(p.read_bytes()).hexdigest() + "\n" for p in (DEFAULT_MODEL, DEFAULT_Q4_PROJECTION)]
    assert over.sha256 == hashlib.sha256("".join(digests).encode()).hexdigest() != plain.sha256


def fails(path, *words, **kw):
    with pytest.raises(InputError) as e:
        load_model(path, **kw)
    line = str(e.value)
    assert "\n" not in line
    for word in words:
        assert word in line, line
    return line


def test_no_such_file(tmp_path):
    fails(tmp_path / "none.gguf", "none.gguf", "No such file")


def test_not_a_gguf(tmp_path):
    bad = tmp_path / "x.gguf"
    bad.write_bytes(b"PK\x03\x04" + bytes(100))
    fails(bad, "x.gguf", "expected a GGUF file", "PK")
    bad.write_bytes(b"")
    fails(bad, "expected a GGUF file", "found 0 bytes")


def test_wrong_architecture(tmp_path):
    # Another architecture's keys carry its own prefix, so the line about the architecture must come first.
    fails(rewrite(DEFAULT_MODEL, tmp_path / "x.gguf", arch="llama"), "general.architecture", "expected 'edge0'", "found 'llama'")


def test_missing_key(tmp_path):
    bad = rewrite(DEFAULT_MODEL, tmp_path / "x.gguf", drop_key="edge0.expert_count")
    fails(bad, "x.gguf", "edge0.expert_count", "it is missing")


@pytest.mark.parametrize("key,value,words", [
    ("edge0.rope.type", "norm", ("expected 'neox'", "found 'norm'")),
    ("edge0.block_count", 7, ("blk.6.attn_norm.weight", "missing")),
    ("edge0.block_count", 5, ("blk.5.", "no such tensor")),
    ("edge0.expert_used_count", 17, ("at most 16 experts", "found 17")),
    ("edge0.embedding_length", 416, ("tok_embd.weight", "expected shape [288, 416]", "found [288, 384]")),
    ("edge0.embedding_length", "x", ("expected an integer", "found 'x'")),
    ("edge0.latent_length", 250, ("multiple of 32", "found 250")),
    ("edge0.attention.head_count_kv", 4, ("divisor of 6", "found 4")),
])
def test_metadata_that_does_not_fit(tmp_path, key, value, words):
    fails(rewrite(DEFAULT_MODEL, tmp_path / "x.gguf", set_key=(key, value)), "x.gguf", *words)


def only(target, change):
    return lambda name, data, kind: change(name, data, kind) if name == target else [(name, data, kind)]


@pytest.mark.parametrize("target,change,words", [
    ("blk.3.attn_k.weight", lambda n, d, k: [], ("blk.3.attn_k.weight", "[128, 384]", "missing")),
    ("blk.3.attn_k.weight", lambda n, d, k: [(n, d[:-1], k)], ("expected shape [128, 384]", "found [127, 384]")),
    ("mtp.blk.ffn_up_exps.weight", lambda n, d, k: [(n, d[:15], k)], ("shape [16, 128, 256]", "found [15, 128, 256]")),
    ("latent_up.weight", lambda n, d, k: [(n, np.zeros((384, 160), np.uint8), T.Q4_1)], ("latent_up.weight", "found Q4_1")),
    ("blk.1.ffn_gate_inp.weight", lambda n, d, k: [(n, np.zeros((16, 408), np.uint8), T.Q8_0)],
     ("expected F32 for the router", "found Q8_0")),
    ("blk.1.attn_q.weight", lambda n, d, k: [(n, np.zeros((384, 216), np.uint8), T.Q4_0)], ("attention", "found Q4_0")),
    ("output_norm.weight", lambda n, d, k: [(n, d, k), ("output_norm.bias", d, k)], ("output_norm.bias", "no such tensor")),
])
def test_wrong_tensor(tmp_path, target, change, words):
    fails(rewrite(DEFAULT_MODEL, tmp_path / "x.gguf", tensor=only(target, change)), "x.gguf", *words)


def test_rewriting_alone_is_no_fault(tmp_path):
    """The negative control of the tests above: the same path without a change loads."""
    again = load_model(rewrite(DEFAULT_MODEL, tmp_path / "x.gguf"))
    for name, t in load_model().tensors.items():
        assert again.tensor(name).raw.tobytes() == t.raw.tobytes()


def patched(tmp_path, at, new):
    bad = tmp_path / "x.gguf"
    blob = bytearray(DEFAULT_MODEL.read_bytes())
    blob[at : at + len(new)] = new
    bad.write_bytes(blob)
    return bad


def entry_at(name):
    """Offset of a tensor's header entry behind its name: dimensions, shape, type, offset follow."""
    blob = DEFAULT_MODEL.read_bytes()
    raw = name.encode()
    return blob.index(struct.pack("<Q", len(raw)) + raw) + 8 + len(raw)


def test_unknown_type(tmp_path):
    at = entry_at("blk.0.attn_q.weight") + 4 + 16
    fails(patched(tmp_path, at, struct.pack("<I", 999)), "blk.0.attn_q.weight", "known ggml type", "found type 999")


def test_damaged_headers(tmp_path):
    name = "blk.0.attn_q.weight"
    fails(patched(tmp_path, 4, struct.pack("<I", 9)), "version 2 or 3", "found 9")
    fails(patched(tmp_path, 8, struct.pack("<Q", 1 << 60)), "x.gguf", "found")
    fails(patched(tmp_path, 16, struct.pack("<Q", 1 << 60)), "x.gguf", "found")
    fails(patched(tmp_path, entry_at(name), struct.pack("<I", 77)), name, "dimensions", "found 77")
    fails(patched(tmp_path, entry_at(name) + 4, struct.pack("<Q", 1 << 62)), name, "truncated")
    fails(patched(tmp_path, entry_at(name) + 4 + 16 + 4, struct.pack("<Q", 1 << 40)), name, "truncated", "found 0")
    fails(patched(tmp_path, entry_at(name) + 4 + 16 + 4, struct.pack("<Q", 33)), name, "multiples of 32", "found 33")


@pytest.mark.parametrize("keep,words", [
    (3, ("found 3 bytes",)),
    (40, ("truncated in",)),
    (3000, ("truncated in",)),
    (-1, ("tok_embd.weight", "data truncated")),
    (1_000_000, ("blk.0.ffn_up_exps.weight", "data truncated")),
])
def test_truncated(tmp_path, keep, words):
    bad = tmp_path / "x.gguf"
    bad.write_bytes(DEFAULT_MODEL.read_bytes()[:keep])
    fails(bad, "x.gguf", *words)


def test_bytes_of_rubbish_never_escape(tmp_path):
    """Whatever the header holds, the outcome is a model or one line: no other exception, no endless loop."""
    rng = np.random.default_rng(5)
    blob = DEFAULT_MODEL.read_bytes()
    head = bytearray(blob[:6048])
    bad = tmp_path / "x.gguf"
    shutil.copy(DEFAULT_MODEL, bad)
    refused = 0
    for _ in range(60):
        damaged = head.copy()
        for at in rng.integers(0, len(head), 4):
            damaged[at] = rng.integers(0, 256)
        with open(bad, "r+b") as f:
            f.write(damaged)
        try:
            load_model(bad)
        except InputError as e:
            refused += 1
            assert "\n" not in str(e)
    assert refused > 40


def test_projection_faults(tmp_path):
    fails(DEFAULT_MODEL, "edge0-mini-q3_k.gguf", "no such tensor", projection=DEFAULT_MODEL)
    gone = rewrite(DEFAULT_Q4_PROJECTION, tmp_path / "p.gguf", tensor=only("latent_up.weight", lambda *_: []))
    fails(None, "latent_up.weight", "missing", projection=gone)
    short = only("latent_down.weight", lambda n, d, k: [(n, d[:-1], k)])
    cut = rewrite(DEFAULT_Q4_PROJECTION, tmp_path / "q.gguf", tensor=short)
    fails(None, "latent_down.weight", "[256, 384]", "[255, 384]", projection=cut)


def test_unknown_tensor_name():
    with pytest.raises(InputError, match=r"tensor nope: "):
        load_model().tensor("nope")

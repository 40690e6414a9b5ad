"""Other engines' files: what fits is read to the bit, what does not is refused with both numbers."""

import io
import json
import pickle
import struct

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from edge0verify.dump import foreign, sglang
from edge0verify.dump.layouts import LAYOUTS, read_raw
from edge0verify.dump.reader import open_dump
from edge0verify.dump.summary import summarise
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.errors import InputError

from . import samples


def pack_q8_1(blocks):
    """ggml's bytes, one block after another, built with struct alone."""
    out = io.BytesIO()
    for row in range(blocks.rows):
        for b in range(blocks.columns // 32):
            out.write(struct.pack("<ee32b", blocks.d[row, b], blocks.s[row, b], *blocks.codes[row, 32 * b : 32 * b + 32]))
    return out.getvalue()


def pack_q8_1_mmq(codes, d, by_column):
    out = io.BytesIO()
    rows, groups = codes.shape[0], codes.shape[1] // 128
    order = [(r, g) for r in range(rows) for g in range(groups)]
    for r, g in sorted(order, key=lambda place: place[::-1]) if by_column else order:
        out.write(struct.pack("<4f128b", *d[r, 4 * g : 4 * g + 4], *codes[r, 128 * g : 128 * g + 128]))
    return out.getvalue()


class TestRawFiles:
    def test_q8_1(self, tmp_path):
        blocks = samples.blocks(np.random.default_rng(1), 21, 64)
        (tmp_path / "x.bin").write_bytes(pack_q8_1(blocks))
        done = foreign.import_raw(tmp_path / "x.bin", tmp_path / "x.h5", tensor="d-xlq", layout="q8_1", rows=21, cols=64, layer=2)
        assert done.manifest.foreign and done.manifest.engine.name == "foreign"
        with open_dump(tmp_path / "x.h5") as dump:
            assert dump.read(2, "d-xlq").same_bits(blocks) and dump.layers() == [2]
            assert dump.manifest.launches is None and dump.manifest.signature.rows == 21

    @pytest.mark.parametrize("by_column", [False, True])
    def test_q8_1_mmq_in_either_order_of_blocks(self, tmp_path, by_column):
        rng = np.random.default_rng(2)
        codes, d = rng.integers(-127, 128, (5, 384)).astype(np.int8), rng.random((5, 12)).astype(np.float32)
        (tmp_path / "x.bin").write_bytes(pack_q8_1_mmq(codes, d, by_column))
        foreign.import_raw(
            tmp_path / "x.bin", tmp_path / "x.h5", tensor="d-hq", layout="q8_1_mmq", rows=5, cols=384, by_column=by_column
        )
        with open_dump(tmp_path / "x.h5") as dump:
            assert dump.read(0, "d-hq").same_bits(Blocks(codes, d, None, "mmq")) and dump.read(0, "d-hq").quantiser == "mmq"

    @pytest.mark.parametrize(
        ("layout", "tensor", "dtype"),
        [
            ("f32", "a-yl", np.float32),
            ("f16", "a-yl", np.float16),
            ("bf16", "a-yl", ml_dtypes.bfloat16),
            ("i32", "route-ids", np.int32),
        ],
    )
    def test_plain_rows_widen_exactly(self, tmp_path, layout, tensor, dtype):
        rng = np.random.default_rng(3)
        x = np.argsort(rng.random((70, 48)), axis=1) if layout == "i32" else rng.standard_normal((70, 48)) * 100
        x = x.astype(dtype)
        x.tofile(tmp_path / "x.bin")
        foreign.import_raw(tmp_path / "x.bin", tmp_path / "x.h5", tensor=tensor, layout=layout, rows=70, cols=48)
        with open_dump(tmp_path / "x.h5") as dump:
            assert (dump.read(0, tensor) == x.astype(np.int32 if layout == "i32" else np.float32)).all()

    @pytest.mark.parametrize(
        ("layout", "size", "rows", "cols", "message"),
        [
            ("q8_1", 36 * 8, 4, 96, "q8_1, 4 x 96: expected 432 bytes, found 288"),
            ("q8_1", 36 * 8, 4, 50, "expected columns in a multiple of 32, found 50"),
            ("q8_1_mmq", 144, 1, 64, "expected columns in a multiple of 128, found 64"),
            ("f32", 4001, 10, 100, "f32, 10 x 100: expected 4000 bytes, found 4001"),
            ("f32", 0, 0, 100, "expected at least one row"),
            ("q4_0", 18, 1, 32, "expected one of f32, f16, bf16, i32, q8_1, q8_1_mmq, found q4_0"),
        ],
    )
    def test_sizes_and_widths_that_do_not_fit(self, tmp_path, layout, size, rows, cols, message):
        (tmp_path / "x.bin").write_bytes(bytes(size))
        with pytest.raises(InputError, match=message):
            foreign.import_raw(tmp_path / "x.bin", tmp_path / "x.h5", tensor="mine", layout=layout, rows=rows, cols=cols)
        assert not (tmp_path / "x.h5").exists()

    def test_a_scale_that_is_not_finite_is_placed(self, tmp_path):
        blocks = samples.blocks(np.random.default_rng(4), 40, 64)
        blocks.s[33, 1] = np.inf
        (tmp_path / "x.bin").write_bytes(pack_q8_1(blocks))
        with pytest.raises(InputError, match="expected finite s, found inf in row 33, block 1"):
            foreign.import_raw(tmp_path / "x.bin", tmp_path / "x.h5", tensor="d-xlq", layout="q8_1", rows=40, cols=64)
        assert list(tmp_path.glob("*.h5*")) == []

    def test_a_layout_of_another_kind_than_the_tensor(self, tmp_path):
        with pytest.raises(InputError, match="d-xlq: expected a layout of q8_1, found f32"):
            foreign.import_raw(tmp_path / "x.bin", tmp_path / "x.h5", tensor="d-xlq", layout="f32", rows=1, cols=32)

    def test_no_file(self, tmp_path):
        with pytest.raises(InputError, match="expected a raw file, found none"):
            list(read_raw(tmp_path / "x.bin", layout="f32", rows=1, cols=1))

    def test_unit_sizes_are_ggmls(self):
        assert {name: layout.dtype.itemsize for name, layout in LAYOUTS.items()} == {
            "f32": 4, "f16": 2, "bf16": 2, "i32": 4, "q8_1": 36, "q8_1_mmq": 144,
        }


class TestArrayFiles:
    x = np.random.default_rng(5).standard_normal((50, 64)).astype(np.float32)

    def read(self, tmp_path, tensor="a-yl", layer=0):
        with open_dump(tmp_path / "x.h5") as dump:
            return dump.read(layer, tensor)

    @pytest.mark.parametrize("order", ["C", "F", ">"])
    def test_npy_in_any_order_of_elements_and_bytes(self, tmp_path, order):
        x = self.x.astype(">f4") if order == ">" else np.array(self.x, order=order)
        np.save(tmp_path / "x.npy", x)
        foreign.import_arrays(tmp_path / "x.npy", tmp_path / "x.h5", tensor="a-yl", layer="mtp")
        assert (self.read(tmp_path, layer="mtp") == self.x).all()

    def test_npz_member_by_name_and_parts_of_blocks(self, tmp_path):
        blocks = samples.blocks(np.random.default_rng(6), 50, 64)
        np.savez(tmp_path / "a.npz", one=self.x, two=self.x + 1)
        with pytest.raises(InputError, match="expected one array, found one, two"):
            foreign.import_arrays(tmp_path / "a.npz", tmp_path / "x.h5", tensor="a-yl")
        foreign.import_arrays(tmp_path / "a.npz", tmp_path / "x.h5", tensor="a-yl", member="two")
        assert (self.read(tmp_path) == self.x + 1).all()
        np.savez(tmp_path / "b.npz", codes=blocks.codes, d=blocks.d, s=blocks.s)
        foreign.import_arrays(tmp_path / "b.npz", tmp_path / "x.h5", tensor="d-xlq", overwrite=True)
        assert self.read(tmp_path, "d-xlq").same_bits(blocks)

    def test_schema_paths_bring_a_whole_run(self, tmp_path):
        blocks = samples.blocks(np.random.default_rng(7), 50, 64)
        named = {"rows": samples.token_keys(50), "layers/003/a-yl": self.x, "layers/003/d-xlq/codes": blocks.codes}
        named |= {"layers/003/d-xlq/d": blocks.d, "head/top8-ids": np.arange(8)[None]}
        np.savez(tmp_path / "x.npz", **named)
        foreign.import_arrays(tmp_path / "x.npz", tmp_path / "x.h5")
        with open_dump(tmp_path / "x.h5") as dump:
            assert dump.layers() == [3] and (dump.read(3, "a-yl") == self.x).all() and len(dump.rows()) == 50
            assert (dump.read(3, "d-xlq").codes == blocks.codes).all() and dump.read("head", "top8-ids").dtype == np.int32
        np.savez(tmp_path / "y.npz", hidden=self.x)
        with pytest.raises(InputError, match="hidden: expected a name like layers/000/d-xl"):
            foreign.import_arrays(tmp_path / "y.npz", tmp_path / "y.h5")

    def test_safetensors_with_bfloat16(self, tmp_path):
        save_file({"h": self.x.astype(ml_dtypes.bfloat16)}, tmp_path / "x.safetensors")
        foreign.import_arrays(tmp_path / "x.safetensors", tmp_path / "x.h5", tensor="ffn-in")
        assert (self.read(tmp_path, "ffn-in") == self.x.astype(ml_dtypes.bfloat16).astype(np.float32)).all()

    def test_bytes_of_blocks_in_an_array(self, tmp_path):
        blocks = samples.blocks(np.random.default_rng(8), 9, 64)
        np.save(tmp_path / "x.npy", np.frombuffer(pack_q8_1(blocks), np.uint8).reshape(9, 72))
        foreign.import_arrays(tmp_path / "x.npy", tmp_path / "x.h5", tensor="d-xlq", layout="q8_1")
        assert self.read(tmp_path, "d-xlq").same_bits(blocks)

    def test_nothing_is_unpickled(self, tmp_path):
        class Trap:
            def __reduce__(self):
                return (exec, ("raise SystemExit('unpickled')",))

        np.save(tmp_path / "x.npy", np.array([Trap()], dtype=object), allow_pickle=True)
        np.savez(tmp_path / "x.npz", a=np.array([Trap()], dtype=object))
        for suffix in ("pt", "pkl"):
            (tmp_path / f"x.{suffix}").write_bytes(pickle.dumps(Trap()))
        for suffix, message in (("npy", "unpickling"), ("npz", "unpickling"), ("pt", "is a pickle"), ("pkl", "is a pickle")):
            with pytest.raises(InputError, match=message):
                foreign.import_arrays(tmp_path / f"x.{suffix}", tmp_path / "x.h5", tensor="a-yl")

    @pytest.mark.parametrize("suffix", ["npy", "npz", "safetensors"])
    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.98])
    def test_truncated_files_are_one_line(self, tmp_path, suffix, share):
        path = tmp_path / f"x.{suffix}"
        if suffix == "safetensors":
            save_file({"a": self.x}, path)
        else:
            (np.save if suffix == "npy" else np.savez)(path, self.x)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
        with pytest.raises(InputError) as wrong:
            foreign.import_arrays(path, tmp_path / "x.h5", tensor="a-yl")
        assert str(path) in str(wrong.value) and "\n" not in str(wrong.value)

    @pytest.mark.parametrize(
        "entry",
        [
            {"dtype": "F32", "shape": [4], "data_offsets": [0, 15]},
            {"dtype": "F32", "shape": [4], "data_offsets": [8, 24]},
            {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]},
            {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]},
            {"dtype": "F32", "shape": "x", "data_offsets": [0, 16]},
            {"dtype": "F32"},
            7,
        ],
    )
    def test_malformed_safetensors(self, tmp_path, entry):
        header = json.dumps({"a": entry}).encode()
        (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
        with pytest.raises(InputError):
            foreign.import_arrays(tmp_path / "x.safetensors", tmp_path / "x.h5", tensor="a-yl")

    def test_integers_that_do_not_fit(self, tmp_path):
        np.save(tmp_path / "x.npy", np.array([[1, 2**40]]))
        with pytest.raises(InputError, match="expected integers of 32 bits"):
            foreign.import_arrays(tmp_path / "x.npy", tmp_path / "x.h5", tensor="route-ids")


class TestSglangDirectories:
    def fill(self, folder, ranks=(0,)):
        folder.mkdir()
        rng, index = np.random.default_rng(9), 0
        parts = {}
        for rank in ranks:
            for step in (2, 10):                       # 10 after 2: numbers, not text
                for layer in (0, 1):
                    for name in ("hidden", "moe_out"):
                        index += 1
                        x = rng.standard_normal((1, 5, 16), dtype=np.float32)
                        np.save(folder / f"step={step}___rank={rank}___dump_index={index}___name={name}___layer_id={layer}.npy", x)
                        parts.setdefault((rank, layer, name), []).append(x[0])
        np.save(folder / f"step=2___rank={ranks[0]}___dump_index=99___name=input_ids.npy", np.arange(5))
        (folder / "step=2___rank=0___dump_index=100___name=hidden___layer_id=0.pt").write_bytes(b"\x80\x04")
        (folder / "notes.txt").write_text("x")
        return {key: np.concatenate(value) for key, value in parts.items()}

    def test_steps_join_to_rows_and_what_is_left_out_is_said(self, tmp_path):
        parts = self.fill(tmp_path / "d")
        done = foreign.import_directory(tmp_path / "d", tmp_path / "x.h5", names={"hidden": "ffn-in"})
        with open_dump(tmp_path / "x.h5") as dump:
            assert dump.layers() == [0, 1] and dump.tensors(0) == ["ffn-in", "moe_out"]
            for (_, layer, name), value in parts.items():
                assert (dump.read(layer, {"hidden": "ffn-in"}.get(name, name)) == value).all()
        assert sorted(why for _, why in done.skipped) == ["a pickle is not read", "no layer_id tag"]

    def test_several_ranks_need_a_choice(self, tmp_path):
        parts = self.fill(tmp_path / "d", ranks=(0, 3))
        with pytest.raises(InputError, match="found ranks 0, 3"):
            sglang.plan(tmp_path / "d")
        foreign.import_directory(tmp_path / "d", tmp_path / "x.h5", rank=3)
        with open_dump(tmp_path / "x.h5") as dump:
            assert (dump.read(1, "moe_out") == parts[3, 1, "moe_out"]).all()

    def test_only_pickles_or_nothing(self, tmp_path):
        with pytest.raises(InputError, match="expected files named"):
            sglang.plan(tmp_path)
        (tmp_path / "name=a___layer_id=0.pt").write_bytes(b"\x80")
        with pytest.raises(InputError, match="a pickle is not read"):
            sglang.plan(tmp_path)
        with pytest.raises(InputError, match="expected a directory"):
            sglang.plan(tmp_path / "none")
        np.save(tmp_path / "name=a___layer_id=x.npy", np.zeros(3))
        with pytest.raises(InputError, match="layer_id: expected a whole number, found x"):
            sglang.plan(tmp_path)


class TestSummary:
    def test_statistics_of_every_array(self, tmp_path):
        values = samples.make(tmp_path / "x.h5")
        with open_dump(tmp_path / "x.h5") as dump:
            found = summarise(dump)
            bare = summarise(dump, statistics=False)
        by_path = {entry.info.path: entry for entry in found.arrays}
        u, codes = by_path["layers/001/u"], by_path["layers/mtp/d-xlq/codes"]
        x, c = values[1, "u"].astype(np.float64), values["mtp", "d-xlq"].codes
        assert (u.minimum, u.maximum, u.finite, u.nonfinite) == (x.min(), x.max(), x.size, 0)
        assert u.mean == pytest.approx(x.mean(), abs=1e-12) and u.deviation == pytest.approx(x.std(), rel=1e-9)
        assert codes.code_extremes == {k: int((c == k).sum()) for k in (-128, -127, 0, 127)}
        assert found.arrays[0].info.path == "rows" and found.arrays[-1].info.layer == "head" and found.missing == ()
        assert all(entry.mean is None for entry in bare.arrays) and len(bare.arrays) == len(found.arrays)

    @pytest.mark.parametrize("level", ["sketch", "hash"])
    def test_reduced_levels_show_what_they_hold(self, tmp_path, level):
        values = samples.make(tmp_path / "x.h5", level=level)
        with open_dump(tmp_path / "x.h5") as dump:
            entry = next(e for e in summarise(dump).arrays if e.info.path == "layers/000/u")
        assert entry.info.nbytes == values[0, "u"].nbytes and entry.info.stored == level
        assert (entry.maximum == values[0, "u"].max()) if level == "sketch" else entry.maximum is None

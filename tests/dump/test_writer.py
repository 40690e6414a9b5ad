"""Writing and reading back: what goes in comes out, and what is not whole is refused by name."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from edge0verify.dump import levels
from edge0verify.dump.reader import open_dump
from edge0verify.dump.writer import DumpWriter
from edge0verify.numerics.blocks import Blocks
from edge0verify.records.errors import InputError

from . import samples


def alike(a, b):
    if isinstance(a, Blocks):
        return a.same_bits(b) and a.quantiser == b.quantiser
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


class TestRoundTrip:
    @pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
    @pytest.mark.parametrize("pieces", [1, 7])
    def test_every_tensor_comes_back_bit_for_bit(self, tmp_path, pieces, compression):
        values = samples.make(tmp_path / "x.h5", pieces=pieces, compression=compression)
        with open_dump(tmp_path / "x.h5") as dump:
            assert dump.layers() == [0, 1, "mtp"]
            assert dump.tensors(0) == [spec.name for spec in levels.LAYER_TENSORS]
            assert all(alike(value, dump.read(*place)) for place, value in values.items())
            assert (dump.rows() == samples.token_keys(40)).all() and (dump.pairs("mtp") == samples.pair_keys(40)).all()
            assert dump.read("head", "top8-ids").tolist() == [list(range(8))]
            assert dump.missing() == [] and dump.verify() > 0

    def test_rows_larger_than_a_chunk_arrive_in_any_pieces(self, tmp_path):
        rng = np.random.default_rng(1)
        x = rng.standard_normal((9000, 64), dtype=np.float32)
        with DumpWriter(tmp_path / "x.h5", manifest=samples.manifest()) as w:
            at = 0
            while at < len(x):
                step = int(rng.integers(1, 3000))
                w.write(3, "d-xl", x[at : at + step])
                at += step
        with open_dump(tmp_path / "x.h5") as dump:
            assert alike(dump.read(3, "d-xl"), x)
            assert alike(dump.read(3, "d-xl", slice(4090, 4100)), x[4090:4100])
            pieces = [rows for _, rows in dump.iterate(3, "d-xl", rows=1000)]
            assert alike(np.concatenate(pieces), x) and len(pieces) == 9
            assert dump.arrays["layers/003/d-xl"].sha256 == hashlib.sha256(x).hexdigest()

    def test_the_signature_says_what_was_captured(self, tmp_path):
        samples.make(tmp_path / "x.h5", level="outputs")
        with open_dump(tmp_path / "x.h5") as dump:
            signature = dump.manifest.signature
        assert signature.layers == (0, 1, "mtp") and signature.rows == 40
        assert set(signature.tensors) == {"d-xlq", "a-yl", "u", "top8-ids", "top8-logprobs"}

    def test_launches_known_only_at_the_end_are_stored(self, tmp_path):
        w = DumpWriter(tmp_path / "x.h5", manifest=samples.manifest(launches=None))
        w.write(0, "u", np.zeros((2, 96), np.float32))
        w.close(samples.manifest(launches={"U/w11/Q8_0": 7}))
        with open_dump(tmp_path / "x.h5") as dump:
            assert dump.manifest.launches == {"U/w11/Q8_0": 7}

    def test_ten_lines_of_h5py_read_it(self, tmp_path):
        values = samples.make(tmp_path / "x.h5")
        with h5py.File(tmp_path / "x.h5") as f:
            text = json.loads(f.attrs["manifest"])
            group = f["layers/000/d-xlq"]
            assert text["schema"] == "edge0verify.dump/1"
            assert (group["codes"][...] == values[0, "d-xlq"].codes).all() and group["d"].dtype == np.float16
            assert group["codes"].attrs["sha256"].decode() == hashlib.sha256(values[0, "d-xlq"].codes).hexdigest()

    def test_h5dump_reads_it(self, tmp_path):
        samples.make(tmp_path / "x.h5", compression="gzip")
        try:
            out = subprocess.run(["h5dump", "-d", "/layers/mtp/d-xlq/codes", tmp_path / "x.h5"], capture_output=True, text=True)
        except FileNotFoundError:
            print("not run: h5dump is not installed")
            return
        assert out.returncode == 0 and "H5T_STD_I8LE" in out.stdout


class TestLevels:
    @pytest.mark.parametrize(("level", "count"), [("outputs", 3), ("replay", 11), ("full", 14), ("sketch", 11), ("hash", 11)])
    def test_each_level_keeps_its_tensors(self, tmp_path, level, count):
        values = samples.make(tmp_path / "x.h5", level=level)
        with open_dump(tmp_path / "x.h5") as dump:
            assert dump.tensors(1) == [spec.name for spec in levels.tensors_of(level)] and len(dump.tensors(1)) == count
            assert dump.rows() is not None
            if level in levels.REDUCED:
                with pytest.raises(InputError, match=f"expected whole rows, found a dump of level {level}"):
                    dump.read(1, "u")
                info = dump.arrays["layers/001/u"]
                assert info.sha256 == hashlib.sha256(values[1, "u"]).hexdigest() and info.shape == (40, 96)

    def test_an_unknown_level_is_named(self):
        with pytest.raises(InputError, match="expected one of outputs, replay, full, sketch, hash, found everything"):
            levels.captured("u", "everything")

    def test_layers_have_one_name_each(self):
        for layer in (0, 7, 999, "mtp"):
            assert levels.layer_name(levels.layer_path(layer).split("/")[1]) == layer
        for wrong in (-1, 1000, True, "7", "x"):
            with pytest.raises(InputError):
                levels.layer_path(wrong)


class TestRefusedWrites:
    def test_an_existing_file_is_kept_unless_asked(self, tmp_path):
        samples.make(tmp_path / "x.h5")
        before = (tmp_path / "x.h5").read_bytes()
        with pytest.raises(InputError, match="exists already"):
            samples.make(tmp_path / "x.h5", seed=1)
        assert (tmp_path / "x.h5").read_bytes() == before
        samples.make(tmp_path / "x.h5", seed=1, overwrite=True)
        assert (tmp_path / "x.h5").read_bytes() != before

    def test_a_file_that_appears_meanwhile_is_not_replaced(self, tmp_path):
        w = DumpWriter(tmp_path / "x.h5", manifest=samples.manifest())
        w.write(0, "u", np.zeros((2, 96), np.float32))
        (tmp_path / "x.h5").write_text("other")
        with pytest.raises(InputError, match="appeared while"):
            w.close()
        assert (tmp_path / "x.h5").read_text() == "other" and os.listdir(tmp_path) == ["x.h5"]

    def test_two_writers_of_one_name(self, tmp_path):
        first = DumpWriter(tmp_path / "x.h5", manifest=samples.manifest())
        with pytest.raises(InputError, match="another process is writing"):
            DumpWriter(tmp_path / "x.h5", manifest=samples.manifest())
        first.write(0, "u", np.zeros((2, 96), np.float32))
        first.close()
        assert os.listdir(tmp_path) == ["x.h5"]

    def test_an_exception_leaves_nothing(self, tmp_path):
        with pytest.raises(KeyError), DumpWriter(tmp_path / "x.h5", manifest=samples.manifest()) as w:
            w.write(0, "u", np.zeros((9000, 96), np.float32))
            raise KeyError
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize(
        ("tensor", "value", "message"),
        [
            ("d-xlq", np.zeros((2, 64), np.float32), "expected q8_1, found ndarray"),
            ("u", np.zeros((2, 96)), "expected f32, found float64"),
            ("route-ids", np.zeros((2, 4), np.float32), "expected i32, found float32"),
            ("u", np.zeros((2, 95), np.float32), r"expected rows of float32 \(96,\), found float32 \(95,\)"),
            ("mine", np.array(["a"], object), "expected rows of"),
            ("a/b", np.zeros(3, np.float32), "not a tensor name"),
            ("d-hq", Blocks(np.zeros((2, 33), np.int8), np.zeros((2, 1), np.float16), None, "mmq"), "expected int8 codes"),
        ],
    )
    def test_what_does_not_fit_the_schema(self, tmp_path, tensor, value, message):
        with pytest.raises(InputError, match=message), DumpWriter(tmp_path / "x.h5", manifest=samples.manifest()) as w:
            w.write(0, "u", np.zeros((2, 96), np.float32))
            w.write(0, tensor, value)
        assert os.listdir(tmp_path) == []

    def test_no_folder(self, tmp_path):
        with pytest.raises(InputError, match="expected an existing folder"):
            DumpWriter(tmp_path / "no" / "x.h5", manifest=samples.manifest())


class TestFullDisk:
    """A disk that fills up is played by a limit on the size of files, which fails the same call in the same way."""

    def test_one_clear_line_and_nothing_kept(self, tmp_path):
        code = (
            "import resource\n"
            "from tests.dump import samples\n"
            "from edge0verify.records.errors import InputError\n"
            "for limit in (10, 3000, 100_000, 600_000, 2_000_000):\n"
            "    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))\n"
            "    try:\n"
            f"        samples.make({str(tmp_path / 'x.h5')!r}, tokens=1500, pieces=5)\n"
            "    except InputError as wrong:\n"
            "        print(wrong)\n"
        )
        out = run(code)
        assert out.returncode == 0 and out.stderr == ""
        lines = out.stdout.splitlines()
        assert len(lines) == 5 and all("x.h5: file size limit reached while" in line for line in lines)
        assert os.listdir(tmp_path) == []

    def test_a_file_system_without_space(self, tmp_path):
        small = tmp_path / "small"
        small.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
            print("not run: no right to mount a small file system")
            return
        try:
            with pytest.raises(InputError, match="no space left on the disk while"):
                samples.make(small / "x.h5", tokens=1500, pieces=5)
            assert os.listdir(small) == []
        finally:
            subprocess.run(["umount", small], check=True)


class TestRefusedFiles:
    def check(self, path, message, read=True):
        with pytest.raises(InputError, match=message) as wrong, open_dump(path) as dump:
            dump.verify()
            if read:
                dump.rows()
                for layer in dump.layers():
                    dump.pairs(layer)
        assert "\n" not in str(wrong.value) and str(path) in str(wrong.value)

    def doctored(self, tmp_path, change):
        samples.make(tmp_path / "x.h5")
        with h5py.File(tmp_path / "x.h5", "r+") as f:
            change(f)
        return tmp_path / "x.h5"

    def test_a_name_that_marks_an_unfinished_file(self, tmp_path):
        samples.make(tmp_path / "x.h5")
        os.rename(tmp_path / "x.h5", tmp_path / "x.h5.partial")
        self.check(tmp_path / "x.h5.partial", "unfinished")

    def test_an_unfinished_file_under_a_whole_name(self, tmp_path):
        w = DumpWriter(tmp_path / "x.h5", manifest=samples.manifest())
        w.write(0, "u", np.zeros((9000, 96), np.float32))
        w._file.flush()
        Path(tmp_path / "y.h5").write_bytes((tmp_path / "x.h5.partial").read_bytes())
        w.abort()
        self.check(tmp_path / "y.h5", "manifest|expected an HDF5 file")

    def test_another_kind_of_file_or_none(self, tmp_path):
        (tmp_path / "x.h5").write_bytes(b"PK\3\4" * 1000)
        self.check(tmp_path / "x.h5", "expected an HDF5 file")
        self.check(tmp_path / "none.h5", "no such file")

    @pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
    def test_a_truncated_file(self, tmp_path, share):
        samples.make(tmp_path / "x.h5")
        data = (tmp_path / "x.h5").read_bytes()
        (tmp_path / "x.h5").write_bytes(data[: int(len(data) * share)])
        self.check(tmp_path / "x.h5", "expected an HDF5 file")

    def test_a_flipped_byte_of_a_tensor_names_it(self, tmp_path):
        values = samples.make(tmp_path / "x.h5")
        data = bytearray((tmp_path / "x.h5").read_bytes())
        at = data.index(values[1, "a-yl"].tobytes()) + 777
        data[at] ^= 1
        (tmp_path / "x.h5").write_bytes(data)
        self.check(tmp_path / "x.h5", "layers/001/a-yl: damaged: expected sha256 [0-9a-f]{16}, found")
        with open_dump(tmp_path / "x.h5") as dump:
            dump.read(1, "u")
            with pytest.raises(InputError, match="a-yl: damaged"):
                dump.read(1, "a-yl", slice(0, 1))

    def test_any_flipped_byte_is_refused_or_changes_nothing(self, tmp_path):
        values = samples.make(tmp_path / "x.h5", tokens=8)
        data = (tmp_path / "x.h5").read_bytes()
        rng = np.random.default_rng(8)
        refused = 0
        for at in rng.integers(0, len(data), 80):
            damaged = bytearray(data)
            damaged[at] ^= 1 << int(rng.integers(0, 8))
            (tmp_path / "y.h5").write_bytes(damaged)
            try:
                with open_dump(tmp_path / "y.h5") as dump:
                    dump.verify()
                    assert all(alike(value, dump.read(*place)) for place, value in values.items())
                    assert dump.manifest.level == "full" and not dump.missing()
            except InputError as wrong:
                refused += 1
                assert "\n" not in str(wrong)
        assert refused > 60

    def test_no_manifest_or_another_schema(self, tmp_path):
        self.check(self.doctored(tmp_path, lambda f: f.attrs.__delitem__("manifest")), "expected the attribute manifest")
        os.unlink(tmp_path / "x.h5")

        def other(f):
            text = json.loads(f.attrs["manifest"])
            f.attrs["manifest"] = json.dumps({**text, "schema": "edge0verify.dump/9"})

        self.check(self.doctored(tmp_path, other), "edge0verify.dump/")

    def test_a_tensor_without_its_hash(self, tmp_path):
        path = self.doctored(tmp_path, lambda f: f["layers/000/u"].attrs.__delitem__("sha256"))
        self.check(path, "layers/000/u: expected the attribute sha256")

    def test_scales_or_keys_that_do_not_fit(self, tmp_path):
        def replace(name, value):
            def change(f):
                del f[name]
                f[name] = value
                f[name].attrs["sha256"] = hashlib.sha256(value).hexdigest()

            path = self.doctored(tmp_path, change)
            return path

        scales = np.zeros((40, 3), np.float16)
        self.check(replace("layers/000/d-xlq/d", scales), r"d-xlq/d: expected floats \(40, 2\), found float16 \(40, 3\)")
        os.unlink(tmp_path / "x.h5")
        self.check(replace("layers/000/u", np.zeros((39, 96), np.float32)), "u: expected 40 rows as in rows, found 39")
        os.unlink(tmp_path / "x.h5")
        keys = samples.token_keys(40)
        keys[7] = keys[3]
        self.check(replace("rows", keys), r"rows: expected unique keys, found \[0, 3\] 2 times")
        os.unlink(tmp_path / "x.h5")
        pairs = samples.pair_keys(40)
        pairs[9, :3] = pairs[8, :3]
        self.check(replace("layers/mtp/pairs", pairs), "layers/mtp/pairs: expected unique keys")

    def test_a_missing_or_empty_tensor_is_left_to_the_comparison(self, tmp_path):
        def change(f):
            del f["layers/000/u"]
            f.move("layers/001/a-yl", "layers/001/a-yy")
            del f["layers/mtp/u"]
            f["layers/mtp/u"] = np.zeros((0, 96), np.float32)
            del f["layers/mtp/a-yl"]
            f["layers/mtp/a-yl"] = np.zeros((0, 64), np.float32)
            f["layers/mtp/a-yl"].attrs["sha256"] = hashlib.sha256(b"").hexdigest()

        with open_dump(self.doctored(tmp_path, change)) as dump:
            assert dump.missing() == [(0, "u"), (1, "a-yl")]
            assert dump.read("mtp", "u").shape == (0, 96) and "a-yy" in dump.tensors(1)
            with pytest.raises(InputError, match="layers/000/u: expected in the dump, found no such tensor"):
                dump.read(0, "u")


def run(code, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2], **options)


class TestMemory:
    def test_a_long_stream_takes_bounded_memory(self, tmp_path):
        code = (
            "import numpy as np\n"
            "from tests.dump import samples\n"
            "from tests.memory import peak_kib\n"
            "from edge0verify.dump.writer import DumpWriter\n"
            "from edge0verify.dump.reader import open_dump\n"
            "x = np.zeros((4096, 1024), np.float32)\n"
            "base = peak_kib()\n"
            f"with DumpWriter({str(tmp_path / 'x.h5')!r}, manifest=samples.manifest()) as w:\n"
            "    for i in range(16):\n"
            "        x[:] = i\n"
            "        w.write(0, 'u', x)\n"
            f"with open_dump({str(tmp_path / 'x.h5')!r}) as dump:\n"
            "    assert dump.verify() == 1 << 28\n"
            "print(peak_kib() - base)\n"
        )
        out = run(code)
        assert out.returncode == 0, out.stderr
        assert int(out.stdout) < 40 * 1024



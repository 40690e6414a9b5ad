"""The compiled comparison against a numpy oracle that shares no code with it."""

from dataclasses import replace

import h5py
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge0verify.dump import _onepass
from edge0verify.dump.extents import extents
from edge0verify.dump.onepass import CODE_DIFFERENCES, OnePass, compare_arrays, compare_datasets
from edge0verify.records.errors import InputError

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64, "i8": np.int8, "i32": np.int32}
WORD = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
EXACT = (
    "n", "equal", "finite", "nan_a", "nan_b", "inf_a", "inf_b", "nan_both", "unlike", "first_unequal", "first_unlike",
    "max_abs", "max_rel", "max_ulp",
)
SUMS = ("sum_a", "sum_b", "sum_aa", "sum_bb", "sum_ab", "sum_dd")


def ranks(x):
    """Python integers that count representable values; both zeros are 0."""
    if x.dtype.kind == "i":
        return [int(v) for v in x]
    bits, size = x.view(WORD[x.dtype.itemsize]), x.dtype.itemsize * 8
    half = 1 << (size - 1)
    return [int(v) if int(v) < half else half - int(v) for v in bits]


def first(mask):
    return int(np.flatnonzero(mask)[0]) if mask.any() else None


def peak(values, finite):
    """(maximum, first place) over finite pairs, or (0, None) where nothing exceeds 0."""
    best, place = 0, None
    for i in np.flatnonzero(finite):
        if values[i] > best:
            best, place = values[i], int(i)
    return best, place


def oracle(a, b, nan_equal=True):
    a, b = a.reshape(-1), b.reshape(-1)
    word = WORD[a.dtype.itemsize]
    with np.errstate(invalid="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
    na, nb, ia, ib = np.isnan(x), np.isnan(y), np.isinf(x), np.isinf(y)
    same = a.view(word) == b.view(word)
    equal = same | (na & nb) if nan_equal else same
    ok = ~(na | nb | ia | ib)
    unlike = ~ok & ~(na & nb) & ~same
    with np.errstate(all="ignore"):
        d = np.abs(x - y)
        m = np.maximum(np.abs(x), np.abs(y))
        rel = np.where(m > 0, d / np.where(m > 0, m, 1), 0)
    ulp = [abs(p - q) for p, q in zip(ranks(a), ranks(b))]
    xs, ys = np.where(ok, x, 0), np.where(ok, y, 0)
    with np.errstate(all="ignore"):
        sums = [np.sum(v) for v in (xs, ys, xs * xs, ys * ys, xs * ys, (xs - ys) ** 2)]
    histogram = np.zeros(65, np.int64)
    for i in np.flatnonzero(ok):
        histogram[ulp[i].bit_length()] += 1
    return {
        "n": a.size, "equal": int(equal.sum()), "finite": int(ok.sum()),
        "nan_a": int(na.sum()), "nan_b": int(nb.sum()), "inf_a": int(ia.sum()), "inf_b": int(ib.sum()),
        "nan_both": int((na & nb).sum()), "unlike": int(unlike.sum()),
        "first_unequal": first(~equal), "first_unlike": first(unlike),
        "max_abs": peak(d, ok), "max_rel": peak(rel, ok), "max_ulp": peak(ulp, ok),
        "sums": sums, "scale": float(sums[2] + sums[3]), "ulp_histogram": histogram,
    }


compare_arrays_under_test = compare_arrays


def flat(found):
    out = {name: getattr(found, name) for name in EXACT}
    for name in ("max_abs", "max_rel", "max_ulp"):
        out[name] = (out[name].value, out[name].index)
    return out


def agree(a, b, dtype, *, nan_equal=True, **options):
    found = compare_arrays_under_test(a, b, nan_equal=nan_equal, ulp_histogram=True, **options)
    expected = oracle(a, b, nan_equal)
    assert found.dtype == dtype
    assert flat(found) == {name: expected[name] for name in EXACT}
    for name, value in zip(SUMS, expected["sums"]):
        slack = 1e-12 * max(expected["scale"], np.sqrt(expected["scale"]))
        assert not np.isfinite(value) or getattr(found, name) == pytest.approx(value, rel=1e-12, abs=slack)
    if dtype == "i8":
        difference = a.astype(int).reshape(-1) - b.astype(int).reshape(-1)
        assert (found.code_histogram == [(difference == k).sum() for k in CODE_DIFFERENCES]).all()
    else:
        assert (found.ulp_histogram == expected["ulp_histogram"]).all()
    return found


def special(dtype):
    """Bit patterns where comparisons go wrong: both zeros, subnormals, neighbours, infinities, NaNs of several payloads."""
    size = np.dtype(DTYPES[dtype]).itemsize * 8
    if dtype in ("i8", "i32"):
        return [0, 1, (1 << size) - 1, 1 << (size - 1), (1 << (size - 1)) - 1]
    mantissa = {"f32": 23, "f16": 10, "bf16": 7, "f64": 52}[dtype]
    sign, infinity = 1 << (size - 1), ((1 << (size - 1 - mantissa)) - 1) << mantissa
    one = (infinity >> (mantissa + 1)) << mantissa
    quiet = infinity + (1 << (mantissa - 1))
    plain = [0, 1, 2, (1 << mantissa) - 1, 1 << mantissa, one - 1, one, one + 1]
    plain += [infinity - 1, infinity, infinity + 1, quiet, sign - 1]
    return plain + [v | sign for v in plain]


@st.composite
def pairs(draw, dtype):
    word = WORD[np.dtype(DTYPES[dtype]).itemsize]
    size = np.dtype(word).itemsize * 8
    element = st.one_of(st.sampled_from(special(dtype)), st.integers(0, (1 << size) - 1))
    n = draw(st.integers(0, 70))
    a = np.array(draw(st.lists(element, min_size=n, max_size=n)), dtype=word)
    step = st.one_of(st.just(0), st.integers(-3, 3))
    moved = (a.astype(object) + draw(st.lists(step, min_size=n, max_size=n))) % (1 << size) if n else a
    other = np.array(draw(st.lists(element, min_size=n, max_size=n)), dtype=word)
    take = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    b = np.where(take, np.array(moved, dtype=word), other)
    return a.view(DTYPES[dtype]), b.view(DTYPES[dtype])


class TestAgainstNumpy:
    @pytest.mark.parametrize("isa", _onepass.usable_isas())
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_arbitrary_bits_give_what_numpy_gives(self, dtype, isa):
        @settings(max_examples=60, deadline=None)
        @given(pairs(dtype), st.booleans())
        def check(ab, nan_equal):
            agree(*ab, dtype, nan_equal=nan_equal, isa=isa)

        check()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_every_pair_of_special_values(self, dtype):
        word = WORD[np.dtype(DTYPES[dtype]).itemsize]
        values = np.array(special(dtype), dtype=word).view(DTYPES[dtype])
        a, b = (np.ascontiguousarray(g).reshape(-1) for g in np.meshgrid(values, values, indexing="ij"))
        agree(a, b, dtype)

    @pytest.mark.parametrize("dtype", ["f32", "i8"])
    @pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1023, 1024, 1025, 5000])
    def test_lengths_round_the_edges_of_lanes_and_pieces(self, dtype, n):
        rng = np.random.default_rng(n)
        a = rng.integers(-127, 128, n).astype(DTYPES[dtype])
        b = a + rng.integers(-1, 2, n).astype(DTYPES[dtype])
        agree(a, b, dtype)

    def test_peaks_that_rise_with_every_element(self):
        a = np.linspace(1, 2, 4096, dtype=np.float32)
        b = a * (1 + np.arange(4096, dtype=np.float32) * np.float32(1e-6))
        agree(a, b, "f32")


class TestOneResult:
    """The numbers depend on the tensors alone."""

    n = 3 * _onepass.SEGMENT + 4321

    def sides(self, seed=3):
        rng = np.random.default_rng(seed)
        a = rng.standard_normal(self.n, dtype=np.float32)
        b = a + rng.standard_normal(self.n, dtype=np.float32) * np.float32(1e-5)
        b[[7, 200_000]] = np.nan, np.inf
        return a, b

    def test_threads_and_instruction_sets_change_no_bit(self):
        a, b = self.sides()
        one = compare_arrays(a, b, threads=1, isa="baseline", ulp_histogram=True)
        for isa in _onepass.usable_isas():
            for threads in (1, 2, 3):
                assert same(one, compare_arrays(a, b, threads=threads, isa=isa, ulp_histogram=True))

    def test_the_sizes_of_the_pieces_change_no_bit(self):
        a, b = self.sides(4)
        rng = np.random.default_rng(5)
        run, at = OnePass("f32", ulp_histogram=True), 0
        while at < self.n:
            step = int(rng.integers(1, 200_000))
            run.update(a[at : at + step], b[at : at + step])
            at += step
        assert same(run.result((self.n,)), compare_arrays(a, b, ulp_histogram=True))

    def test_a_result_may_be_taken_half_way(self):
        a, b = self.sides(6)
        run = OnePass("f32")
        run.update(a[:1000], b[:1000])
        assert same(run.result(), compare_arrays(a[:1000], b[:1000]))
        run.update(a[1000:], b[1000:])
        assert same(run.result(), compare_arrays(a, b))


def same(x, y):
    for name in x.__dataclass_fields__:
        p, q = getattr(x, name), getattr(y, name)
        if isinstance(p, np.ndarray):
            if not (p == q).all():
                return False
        elif p != q:
            return False
    return True


class TestFigures:
    def test_relative_l2_correlation_and_percentage(self):
        rng = np.random.default_rng(1)
        a, b = rng.standard_normal((2, 400_000))
        found = compare_arrays(a, b)
        assert found.rel_l2 == pytest.approx(np.linalg.norm(a - b) / np.linalg.norm(b), rel=1e-12)
        assert found.corr == pytest.approx(np.corrcoef(a, b)[0, 1], rel=1e-9)
        assert compare_arrays(a, a).rel_l2 == 0.0 and compare_arrays(a, a).equal_pct == 100.0

    def test_one_code_in_a_hundred_thousand_shows(self):
        a = np.zeros((100, 1000), np.int8)
        b = a.copy()
        b[71, 3] = 2
        found = compare_arrays(a, b)
        assert (found.equal, found.max_code_diff, found.max_abs.index) == (99_999, 2, 71_003)
        assert found.code_histogram[255 - 2] == 1

    def test_constant_or_empty_sides_have_no_correlation(self):
        assert compare_arrays(np.ones(9, np.float32), np.arange(9, dtype=np.float32)).corr is None
        empty = compare_arrays(np.empty((0, 4), np.float32), np.empty((0, 4), np.float32))
        assert empty.corr is None and empty.rel_l2 is None and empty.equal_pct is None

    def test_zero_signs_and_nan_payloads(self):
        a = np.array([0x00000000, 0x7FC00001, 0x7FC00001], np.uint32).view(np.float32)
        b = np.array([0x80000000, 0x7FC00002, 0x3F800000], np.uint32).view(np.float32)
        loose, strict = compare_arrays(a, b), compare_arrays(a, b, nan_equal=False)
        assert (loose.equal, strict.equal) == (1, 0)
        assert loose.max_ulp.value == 0 and loose.nan_both == 1 and loose.unlike == 1 and loose.first_unlike == 2

    def test_bfloat16_bits_in_words(self):
        a = np.array([0x3F80, 0x4000], np.uint16)
        b = np.array([0x3F81, 0x4000], np.uint16)
        found = compare_arrays(a, b, dtype="bf16")
        assert (found.equal, found.max_ulp.value, found.max_abs.value) == (1, 1, 2.0**-7)


class TestRefusals:
    def test_unlike_shapes_and_dtypes_are_named(self):
        with pytest.raises(InputError, match=r"d-xl: expected the same shape.*\(2, 3\) and \(3, 2\)"):
            compare_arrays(np.zeros((2, 3)), np.zeros((3, 2)), name="d-xl")
        with pytest.raises(InputError, match="float32 and float64"):
            compare_arrays(np.zeros(3, np.float32), np.zeros(3))
        with pytest.raises(InputError, match="complex64"):
            compare_arrays(np.zeros(3, np.complex64), np.zeros(3, np.complex64))

    def test_an_instruction_set_that_was_not_built(self):
        with pytest.raises(ValueError, match="not built"):
            OnePass("f32", isa="sve9")


STORED_AS = {
    "chunks": {"chunks": (64, 40), "maxshape": (None, 40)},
    "contiguous": {},
    "gzip": {"chunks": (100, 40), "compression": "gzip"},
    "columns": {"chunks": (100, 20)},
}


class TestDatasets:
    @pytest.fixture(scope="module")
    @staticmethod
    def stored(tmp_path_factory):
        rng = np.random.default_rng(2)
        a = rng.standard_normal((7001, 40), dtype=np.float32)
        b = a + np.float32(1e-4)
        path = tmp_path_factory.mktemp("h5") / "x.h5"
        with h5py.File(path, "w") as f:
            for name, options in STORED_AS.items():
                f.create_dataset(f"a-{name}", data=a, **options)
                f.create_dataset(f"b-{name}", data=b, **options)
        return path, compare_arrays(a, b, ulp_histogram=True)

    @pytest.mark.parametrize("piece_bytes", [100, 4096, 1 << 20])
    @pytest.mark.parametrize("right", STORED_AS)
    @pytest.mark.parametrize("left", STORED_AS)
    def test_files_give_the_numbers_of_arrays(self, stored, left, right, piece_bytes):
        path, expected = stored
        with h5py.File(path) as f:
            found = compare_datasets(f[f"a-{left}"], f[f"b-{right}"], piece_bytes=piece_bytes, ulp_histogram=True)
        assert same(found, expected)

    def test_only_plain_bytes_are_read_past_hdf5(self, stored):
        with h5py.File(stored[0]) as f:
            assert [name for name in STORED_AS if extents(f[f"a-{name}"])] == ["chunks", "contiguous"]
        with h5py.File(stored[0], "r+") as f:
            assert extents(f["a-chunks"]) is None

    def test_an_error_while_reading_reaches_the_caller(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as f:
            d = f.create_dataset("a", data=np.zeros((5000, 100), np.float32), chunks=(10, 100), compression="gzip", fletcher32=True)
            place = d.id.get_chunk_info(300).byte_offset
        raw = bytearray((tmp_path / "x.h5").read_bytes())
        raw[place + 5] ^= 255
        (tmp_path / "x.h5").write_bytes(raw)
        with h5py.File(tmp_path / "x.h5") as f, pytest.raises(InputError, match=r"x\.h5:/a: cannot be read"):
            compare_datasets(f["a"], f["a"], piece_bytes=4000)

    def test_a_file_that_shrinks_meanwhile(self, tmp_path):
        with h5py.File(tmp_path / "x.h5", "w") as f:
            f["a"] = np.zeros((5000, 100), np.float32)
        with h5py.File(tmp_path / "x.h5") as f:
            with (tmp_path / "x.h5").open("r+b") as raw:
                raw.truncate(1_000_000)
            with pytest.raises(InputError, match="cannot be read: the file ends too early"):
                compare_datasets(f["a"], f["a"])


class TestTheOracleNotices:
    """Negative controls: doctored results of the compiled comparison do not pass for right ones."""

    @pytest.mark.parametrize("fault", ["lost element", "stale place", "signed zero", "payload"])
    def test_a_planted_fault(self, fault, monkeypatch):
        rng = np.random.default_rng(9)
        a = rng.standard_normal(3000, dtype=np.float32)
        b = a + np.float32(0.5)
        a[5], b[5] = 0.0, -0.0
        a[6:7].view(np.uint32)[0], b[6:7].view(np.uint32)[0] = 0x7FC00001, 0x7FC00002
        agree(a, b, "f32")

        def faulty(x, y, **options):
            found = compare_arrays(x[:-1], y[:-1], **options) if fault == "lost element" else compare_arrays(x, y, **options)
            changes = {
                "lost element": {},
                "stale place": {"max_abs": replace(found.max_abs, index=found.max_abs.index + 1)},
                "signed zero": {"equal": found.equal + 1},
                "payload": {"equal": found.equal - 1},
            }
            return replace(found, **changes[fault])

        monkeypatch.setitem(globals(), "compare_arrays_under_test", faulty)
        with pytest.raises(AssertionError):
            agree(a, b, "f32")

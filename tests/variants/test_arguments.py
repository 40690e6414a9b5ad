"""What the bindings refuse, and the line they refuse it with."""

import numpy as np
import pytest

from edge0verify.numerics.quantise import quantise
from edge0verify.variants import _kernels
from edge0verify.variants.kernels import Kernels
from tests.variants.scenes import Shape, scene

K = Kernels(threads=1)
D = scene("D", "mmvq", "Q8_0", Shape(3, 32, 64))
A1 = scene("A1", "mmvq", "Q3_K", Shape(3, 32, 256, 4, 2))
A2 = scene("A2", "mmvq", "IQ4_NL", Shape(3, 32, 64, 4, 2))


def rows_call(**change):
    args = {
        "symbol": "e0_d_mmvq_q8_0", "weights": K.pack("Q8_0", D.raw), "x": D.x, "op_codes": np.zeros((3, 64), np.int8),
        "op_d": np.zeros((3, 2), np.float16), "op_s": np.zeros((3, 2), np.float16), "out": np.zeros((3, 32), np.float32),
    }
    return _kernels.run_rows(**{**args, **change})


@pytest.mark.parametrize(("change", "message"), [
    ({"symbol": "e0_d_mmvq_q9"}, "no compiled kernel named e0_d_mmvq_q9"),
    ({"symbol": "e0_a1_mmvq_q3_k"}, "not an entry of kind rows"),
    ({"symbol": "e0_d_mmvq_q4_0"}, "reads Q4_0, found Q8_0"),
    ({"x": D.x.astype(np.float64)}, "x: expected float32, found another dtype of 64 bits"),
    ({"x": np.asfortranarray(D.x)}, "x: expected a C-contiguous array"),
    ({"x": D.x[:, :32]}, r"x: expected shape \[3, 64\], found \[3, 32\]"),
    ({"op_codes": np.zeros((3, 64), np.uint8)}, "operand codes: expected int8"),
    ({"op_d": np.zeros((3, 2), np.float32)}, "operand d: expected float16"),
    ({"op_d": np.zeros((3, 3), np.float16)}, r"operand d: expected shape \[3, 2\], found \[3, 3\]"),
    ({"out": np.zeros((2, 32), np.float32)}, r"out: expected shape \[3, 32\], found \[2, 32\]"),
    ({"isa": "mmx"}, "instruction set: expected one of .*, found mmx"),
])
def test_a_wrong_argument_is_named_with_expected_and_found(change, message):
    with pytest.raises(ValueError, match=message):
        rows_call(**change)


def test_the_unchanged_call_is_accepted():
    rows_call()


def test_an_output_that_may_not_be_written_is_refused():
    out = np.zeros((3, 32), np.float32)
    out.flags.writeable = False
    with pytest.raises(TypeError):
        rows_call(out=out)


@pytest.mark.parametrize(("fmt", "raw", "message"), [
    ("Q8_0", np.zeros((2, 33), np.uint8), "a Q8_0 row is a multiple of 34 bytes, found 33"),
    ("Q3_K", np.zeros((2, 109), np.uint8), "multiple of 110 bytes"),
    ("Q5_K", np.zeros((2, 34), np.uint8), "format: expected one of Q8_0, Q4_0, Q3_K, IQ4_NL, found Q5_K"),
    ("Q8_0", np.zeros(34, np.uint8), "found 1 dimensions"),
    ("Q8_0", np.zeros((2, 34), np.int8), "raw: expected uint8"),
    ("Q8_0", np.zeros((0, 34), np.uint8), "raw: no rows"),
])
def test_rows_that_do_not_fit_the_format_are_refused(fmt, raw, message):
    with pytest.raises(ValueError, match=message):
        K.pack(fmt, raw)


@pytest.mark.parametrize("wrong", [-1, 4])
def test_an_expert_id_outside_the_weights_is_refused(wrong):
    ids = A1.ids.copy()
    ids[1, 1] = wrong
    with pytest.raises(ValueError, match=rf"ids: expected 0\.\.3, found {wrong}"):
        K.a1("mmvq", K.pack("Q3_K", A1.raw), K.pack("Q3_K", A1.raw_up), A1.x, A1.blocks, ids)


def test_h_in_rows_that_blocks_of_32_do_not_fill_is_refused():
    s = scene("A1", "mmvq", "Q3_K", Shape(3, 33, 256, 4, 2))
    with pytest.raises(ValueError, match="stored in blocks of 32, found 33 rows"):
        K.a1("mmvq", K.pack("Q3_K", s.raw), K.pack("Q3_K", s.raw_up), s.x, s.blocks, s.ids)


def test_a2_refuses_the_operands_of_another_variant():
    with pytest.raises(ValueError, match="h d: expected float32"):
        K.a2("mmq", K.pack("IQ4_NL", A2.raw), A2.blocks, A2.ids, A2.weights)
    with pytest.raises(ValueError, match="h d: expected float16"):
        K.a2("w11", K.pack("IQ4_NL", A2.raw), quantise("mmq", A2.x), A2.ids, A2.weights)


def test_no_tokens_are_no_work():
    out = K.d("w11", K.pack("Q8_0", D.raw), D.x[:0])
    assert out.xl.shape == (0, 32) and out.xlq.codes.shape == (0, 32)

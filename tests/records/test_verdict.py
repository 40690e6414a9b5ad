"""Verdicts: the schema of the design, numbers that JSON can hold, and reading back."""

import json
import math

import numpy as np
import pytest

from edge0verify.records.errors import InputError
from edge0verify.records.schema import VERDICT, problem
from edge0verify.records.verdict import LayerResult, Verdict, Worst, percent, plain


def entry(**changes):
    fields = {
        "layer": 0,
        "tensor": "d-xlq",
        "n": 4,
        "equal": 3,
        "equal_pct": 75.0,
        "max_code_diff": 1,
        "code_diffs": {"1": 1},
        "scale_equal_pct": 100.0,
        "rel_l2": 1e-3,
        "max_abs": 0.5,
        "max_ulp": None,
        "corr": None,
        "conforming": {"a": 4, "b": None},
        "causes": {"equal": 3, "tie": 1},
        "worst": (Worst(index=(1, 2), key=(0, 7, 1), a=3, b=4, bound=(3, 4), cause="tie"),),
        "triangle": {"a_oracle": 0.1, "b_oracle": 0.1, "a_b": 0.01, "oracles": None},
        "status": "PASS",
    }
    return LayerResult(**{**fields, **changes})


def verdict(**changes):
    fields = {
        "status": "PASS",
        "reasons": (),
        "stage": "D",
        "a": "mmq",
        "b": "w11",
        "reference": "mmvq",
        "model": {"name": "mini"},
        "prompt": {"tokens": 3},
        "engaged": {"a": True, "b": None},
        "signature": {"layers": [0]},
        "layers": (entry(),),
        "totals": {"n": 4},
        "environment": {"threads": 2},
    }
    return Verdict(**{**fields, **changes})


def test_what_is_written_is_read_back():
    assert Verdict.loads(verdict().dumps()) == verdict()


def test_fields_are_those_of_the_schema():
    data = verdict().to_json()
    expected = "schema status reasons stage a b reference model prompt engaged signature layers totals top8 environment"
    assert list(data) == expected.split()
    needed = (
        "layer tensor n equal equal_pct max_code_diff scale_equal_pct rel_l2 max_abs max_ulp corr conforming causes bias worst "
        "triangle status"
    )
    assert set(needed.split()) <= set(data["layers"][0])
    assert list(data["layers"][0]["worst"][0]) == ["index", "key", "a", "b", "bound", "cause"]
    assert data["top8"] is None and data["layers"][0]["bias"] is None
    assert problem(data, VERDICT) is None


@pytest.mark.parametrize("status, code", [("PASS", 0), ("FAIL", 1), ("INCONCLUSIVE", 3)])
def test_exit_code_follows_the_status(status, code):
    assert verdict(status=status).exit_code == code


def test_a_status_that_is_none_is_refused():
    with pytest.raises(ValueError, match="status is one of"):
        verdict(status="OK")


def test_not_a_number_and_infinity_become_text_that_json_can_hold():
    text = verdict(layers=(entry(rel_l2=math.nan, max_abs=math.inf),)).dumps()
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (data["layers"][0]["rel_l2"], data["layers"][0]["max_abs"]) == ("nan", "inf")
    assert Verdict.loads(text).layers[0].rel_l2 == "nan"


def test_numpy_scalars_become_numbers():
    assert plain({"a": np.int64(3), "b": [np.float32(0.5)], "c": np.bool_(True)}) == {"a": 3, "b": [0.5], "c": True}


def test_a_percentage_tells_one_code_in_a_hundred_million():
    assert percent(10**8 - 1, 10**8) != percent(10**8, 10**8)
    assert json.loads(json.dumps(percent(10**8 - 1, 10**8))) < 100
    assert percent(0, 0) is None


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda d: d.pop("status"), "status: expected a value"),
        (lambda d: d.update(status="OK"), "status: expected one of PASS, FAIL, INCONCLUSIVE"),
        (lambda d: d["engaged"].update(a="yes"), "engaged.a: expected boolean or null"),
        (lambda d: d["layers"][0].update(n="4"), "layers[0].n: expected integer"),
        (lambda d: d["layers"][0]["worst"][0].pop("key"), "layers[0].worst[0].key: expected a value"),
        (lambda d: d["layers"][0]["causes"].update(tie=-1), "layers[0].causes.tie: expected at least 0"),
    ],
)
def test_a_verdict_that_does_not_fit_is_refused_by_field(change, named):
    data = verdict().to_json()
    change(data)
    with pytest.raises(InputError) as found:
        Verdict.from_json(data, source="v.json")
    assert str(found.value).startswith("v.json: " + named)

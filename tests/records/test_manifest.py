"""Manifests: what is written is read back, and what is wrong is named."""

import json

import pytest

from edge0verify.records.errors import InputError
from edge0verify.records.manifest import DeviceInfo, EngineInfo, Manifest, PromptInfo, Signature


def manifest(**changes):
    fields = {
        "engine": EngineInfo(name="edge0verify", commit="abc", dirty=False, binary_sha256="0" * 64),
        "device": DeviceInfo(name="cpu", arch="x86-64"),
        "prompt": PromptInfo(sha256="1" * 64, tokens=5268),
        "signature": Signature(tensors=("d-xl", "d-xlq"), layers=(0, 1, "mtp"), rows=5268),
        "level": "replay",
        "time": "2026-11-30T12:00:00Z",
        "model_sha256": "2" * 64,
        "variants": {"D": "w11"},
        "flags": {"STRATA_LATENT_MMQ": None},
        "split": ((0, 1), ("mtp",)),
        "launches": {"D/w11/Q8_0": 6},
        "seed": 1,
    }
    return Manifest(**{**fields, **changes})


def test_what_is_written_is_read_back():
    assert Manifest.loads(manifest().dumps()) == manifest()


def test_every_field_of_the_design_is_written():
    expected = (
        "schema engine kernel_source_sha256 model_sha256 prompt variants flags device split launches seed level signature time"
    )
    assert sorted(manifest().to_json()) == sorted(expected.split())
    assert sorted(manifest().to_json()["engine"]) == ["binary_sha256", "commit", "dirty", "name"]


def test_unknown_launches_make_a_dump_foreign():
    assert manifest(launches=None).foreign
    assert not manifest(launches={}).foreign
    assert Manifest.loads(manifest(launches=None).dumps()).foreign


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda d: d.pop("level"), "level: expected a value"),
        (lambda d: d.update(level="everything"), "level: expected one of outputs"),
        (lambda d: d.update(modle_sha256="x"), "modle_sha256: expected one of"),
        (lambda d: d.update(model_sha256="abc"), "model_sha256: expected text like"),
        (lambda d: d["signature"].update(rows=-1), "signature.rows: expected at least 0"),
        (lambda d: d["signature"].update(layers=[0, None]), "signature.layers[1]: expected integer or string"),
        (lambda d: d["launches"].update({"D/w11/Q8_0": 1.5}), "launches.D/w11/Q8_0: expected integer"),
        (lambda d: d.update(seed=True), "seed: expected integer or null"),
        (lambda d: d.update(schema="edge0verify.dump/2"), "schema: expected 'edge0verify.dump/1'"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(change, named):
    data = manifest().to_json()
    change(data)
    with pytest.raises(InputError) as found:
        Manifest.from_json(data, source="run.h5")
    assert str(found.value).startswith("run.h5: " + named)
    assert "\n" not in str(found.value)


def test_text_that_is_no_json_is_an_input_error():
    with pytest.raises(InputError, match=r"run\.h5: expected JSON"):
        Manifest.loads("{", source="run.h5")


def test_json_has_no_python_in_it():
    assert json.loads(manifest().dumps()) == manifest().to_json()

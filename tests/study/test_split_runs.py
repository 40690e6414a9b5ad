"""--split of run and compare: the same bits, the devices in the dump, and a fault that ends with its name."""

import json

import numpy as np
import pytest

from edge0verify.cli.main import run
from edge0verify.dump.reader import Dump

SPLIT = "0-2@sim:0,3-5@sim:1"
PROMPT = ["--prompt", "prose", "--tokens", "20"]


def dumped(tmp_path, name, *words):
    path = tmp_path / name
    assert run(["run", *PROMPT, "-o", str(path), *words]) == 0
    return path


def test_a_dump_of_a_split_is_that_of_one_device_and_says_where_layers_ran(tmp_path, capsys):
    one, two = dumped(tmp_path, "one.h5", "--generate", "4"), dumped(tmp_path, "two.h5", "--generate", "4", "--split", SPLIT)
    capsys.readouterr()
    assert run(["compare", str(one), str(two), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]
    with Dump(two) as dump:
        found = dump.manifest
        assert [list(part) for part in found.split] == [[0, 1, 2], [3, 4, 5, "mtp"]]
        assert SPLIT in found.device.name
        assert found.launches["D/mmvq/Q8_0"] > 0


def test_a_stage_is_replayed_on_the_device_of_its_layer(capsys):
    words = ["compare", "--stage", "U", "--a", "mmvq", "--b", "w11", "--prompt", "prose", "--rows", "0:30", "--json", "-"]
    assert run([*words, "--split", SPLIT]) == 0
    there = json.loads(capsys.readouterr().out)
    assert run(words) == 0
    here = json.loads(capsys.readouterr().out)
    assert there["engaged"] == here["engaged"] == {"a": True, "b": True}
    for a, b in zip(there["layers"], here["layers"]):
        assert (a["layer"], a["tensor"], a["equal"], a["causes"]) == (b["layer"], b["tensor"], b["equal"], b["causes"])


@pytest.mark.parametrize(
    ("mistake", "tensor", "words"), [("pair", "latent_down.weight", []), ("embedding", "tok_embd.weight", ["--generate", "3"])]
)
def test_a_planted_mistake_ends_the_run_with_its_name_and_no_dump(tmp_path, capsys, mistake, tensor, words):
    path = tmp_path / "bad.h5"
    assert run(["run", *PROMPT, *words, "--split", SPLIT, "--plant", mistake, "-o", str(path)]) == 1
    said = capsys.readouterr().err
    assert f"{tensor} lies in memory of device 0 and is read by device 1" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("knobs", ["copy=wrong", "peer=off", "link=x1", "memset=early", "peer=corrupt"])
def test_hand_off_through_mapped_memory_needs_no_peer(tmp_path, knobs):
    whole = dumped(tmp_path, "one.h5")
    split = dumped(tmp_path, "two.h5", "--split", SPLIT, "--knobs", knobs, "--seed", "2")
    with Dump(whole) as a, Dump(split) as b:
        assert np.array_equal(a.read(5, "u"), b.read(5, "u"))


def test_what_is_not_here_or_does_not_fit(tmp_path):
    out = ["-o", str(tmp_path / "x.h5")]
    assert run(["run", *PROMPT, *out, "--split", "0-2@hip:0,3-5@hip:1"]) == 3
    assert run(["run", *PROMPT, *out, "--split", "0-2@sim:0"]) == 2
    assert run(["run", *PROMPT, *out, "--split", SPLIT, "--knobs", "peer=maybe"]) == 2
    assert run(["run", *PROMPT, *out, "--knobs", "peer=off"]) == 2
    assert not list(tmp_path.iterdir())

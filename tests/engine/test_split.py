"""A layer split gives the bits of one device; the two historic mistakes end in a fault that names tensor, owner and reader."""

import numpy as np
import pytest

from edge0verify.cli.main import run
from edge0verify.engine import Engine, generate
from edge0verify.engine.split import MISTAKES, SplitFault, check_uses, parse_split
from edge0verify.engine.split_engine import SplitEngine, open_runtime
from edge0verify.model import encode, load_model, prompt
from edge0verify.probe.audit import audit_split
from edge0verify.records.errors import InputError

TOKENS = 24


@pytest.fixture(scope="module")
def model():
    return load_model()


@pytest.fixture(scope="module")
def tokens():
    return encode(prompt("prose"))[:TOKENS]


def split_run(model, tokens, text, *, mistake=None, seed=0, knobs=None, **options):
    split = parse_split(text, model.config.layers)
    runtime = open_runtime(split, seed=seed, knobs=knobs)
    try:
        engine = SplitEngine(model, split, runtime, mistake=mistake, threads=1, **options)
        return generate(engine, tokens, max_tokens=6), engine.launched.launches()
    finally:
        runtime.close()


class TestBits:
    @pytest.mark.parametrize(
        "text", ["0-5@sim:0", "0-2@sim:0,3-5@sim:1", "0@sim:1,1-4@sim:0,5@sim:2", "0-2@sim:1,3@sim:0,4-5@sim:1"]
    )
    def test_a_split_changes_no_bit(self, model, tokens, text):
        whole = generate(Engine(model, threads=1), tokens, max_tokens=6)
        split, launches = split_run(model, tokens, text)
        assert np.array_equal(split.tokens, whole.tokens)
        assert np.array_equal(split.first.hidden.view(np.uint32), whole.first.hidden.view(np.uint32))
        assert np.array_equal(split.rows, whole.rows)
        assert launches["D/mmvq/Q8_0"] == launches["U/mmvq/Q8_0"] >= 6

    def test_variants_and_chunks_are_those_of_the_engine(self, model, tokens):
        options = {"variants": {"D": "w11", "A": "mmq", "U": "ref"}, "chunk": 7}
        whole = Engine(model, threads=1, **options).prefill(tokens, mtp=True)
        split = parse_split("0-3@sim:0,4-5@sim:1", model.config.layers)
        runtime = open_runtime(split)
        there = SplitEngine(model, split, runtime, threads=1, **options).prefill(tokens, mtp=True)
        runtime.close()
        assert np.array_equal(there.hidden.view(np.uint32), whole.hidden.view(np.uint32))


class TestMistakes:
    @pytest.mark.parametrize("mistake", MISTAKES)
    def test_a_planted_mistake_is_a_fault_that_names_tensor_owner_and_reader(self, model, tokens, mistake):
        where = {"pair": ("latent_down.weight", 3), "embedding": ("tok_embd.weight", "mtp")}[mistake]
        addresses = set()
        for seed in range(4):
            with pytest.raises(SplitFault) as found:
                split_run(model, tokens, "0-2@sim:0,3-5@sim:1", mistake=mistake, seed=seed)
            fault = found.value
            assert fault.error.code == 700
            assert {(v.use.tensor, v.use.layer, v.owner, v.use.reader) for v in fault.violations} == {(*where, 0, 1)}
            assert f"{where[0]} lies in memory of device 0 and is read by device 1" in str(fault)
            addresses.add(fault.error.detail)
        assert len(addresses) == 4

    def test_on_one_device_neither_is_a_fault(self, model, tokens):
        for mistake in MISTAKES:
            split_run(model, tokens, "0-5@sim:0", mistake=mistake)

    def test_the_audit_finds_both_over_seeds_and_nothing_in_a_right_split(self, model):
        split = parse_split("0-2@sim:0,3-5@sim:1", model.config.layers)
        for seed in range(50):
            found = audit_split(model, split, mistake=MISTAKES[seed % 2], seed=seed)
            tensors = {v.use.tensor for v in found.violations}
            assert tensors == ({"latent_down.weight", "latent_up.weight"}, {"tok_embd.weight"})[seed % 2]
            assert {(v.owner, v.use.reader) for v in found.violations} == {(0, 1)}
            assert found.status == "FAIL"
            if seed % 5 == 0:
                healthy = audit_split(model, split, seed=seed)
                assert (healthy.status, healthy.violations) == ("PASS", ())

    def test_peer_access_makes_a_foreign_pointer_right(self, model):
        split = parse_split("0-2@sim:0,3-5@sim:1", model.config.layers)
        runtime = open_runtime(split)
        engine = SplitEngine(model, split, runtime, mistake="pair")
        assert check_uses(runtime, engine.uses())
        assert not check_uses(runtime, engine.uses(), peers=frozenset({(1, 0)}))
        runtime.close()


class TestText:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "0-5",
            "0-2@sim:0",
            "0-2@sim:0,4-5@sim:1",
            "0-3@sim:0,3-5@sim:1",
            "0-2@sim:0,3-5@cuda:0",
            "0-2@tpu:0,3-5@tpu:1",
            "5-0@sim:0",
            "0-6@sim:0",
            "0-2@sim:0,,3-5@sim:1",
            "0-5@sim:",
            "0-5@sim:63",
            "0-5@sim:99999999999999999999",
            "0-\uff15@sim:0",
        ],
    )
    def test_a_split_that_does_not_fit_is_refused(self, text):
        with pytest.raises(InputError):
            parse_split(text, 6)

    @pytest.mark.parametrize("text", ["0-5@cpu", "0-2@sim:0,3-5@sim:70", "0-5@tpu:1"])
    def test_the_command_says_so_and_ends_with_2(self, text, capsys):
        assert run(["probe", "audit", "--split", text]) == 2
        assert capsys.readouterr().err.startswith(f"edge0verify: --split {text}")

    def test_layers_and_drafter_have_their_device(self):
        split = parse_split("0-2@sim:0,3-5@sim:1", 6)
        assert [split.device_of(layer) for layer in (0, 2, 3, 5, "mtp")] == [0, 0, 1, 1, 1]
        assert split.layers_by_device == ((0, 1, 2), (3, 4, 5, "mtp"))
        assert parse_split(str(split), 6) == split

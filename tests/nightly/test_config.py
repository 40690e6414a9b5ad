"""What a configuration comes to, and that nothing in it is passed over."""

import pytest

from edge0verify.nightly.config import load
from edge0verify.records.errors import InputError

GOOD = """
store = "{store}"
threads = 1
timeout_s = 60
[keep]
days = 7
bytes = "1.5 GB"
[base]
commit = "main"
command = ["sh", "base.sh", "{{commit}}", "{{cell}}", "{{out}}"]
[[goldens]]
names = ["r*", "none-such"]
[[pairs]]
models = ["embedded", "embedded-q4_0"]
prompts = ["prose", "code"]
stages = ["D", "A"]
variants = ["mmvq:w11", "native:mmq"]
devices = ["cpu", "sim:0"]
layers = [0]
[[stable]]
stages = ["U"]
variants = ["w11"]
"""


@pytest.fixture
def written(tmp_path, goldens):
    def made(text):
        path = tmp_path / "nightly.toml"
        path.write_text(text.format(store=goldens.folder))
        return path

    return made


def test_cells_of_the_whole_matrix(written, tmp_path):
    config = load(written(GOOD))
    names = [c.name for c in config.cells]
    assert len(names) == 2 + 2 * 2 * 2 * 2 * 2 + 1
    assert names[:2] == ["golden/right/cpu", "golden/none-such/cpu"]  # what matches nothing stays, and will prove nothing
    assert "pair/embedded-q4_0/code/A/mmvq:mmq/sim:0" in names  # aliases by their own name
    assert names[-1] == "stable/embedded/prose/U/w11"
    assert config.out == tmp_path / "nightly"
    assert (config.keep.days, config.keep.bytes) == (7, 1_500_000_000)
    assert config.base.command[2] == "{commit}"


def test_the_plan_has_an_identity(written):
    one = load(written(GOOD)).sha256
    assert load(written(GOOD + "\n# a comment\n")).sha256 == one
    assert load(written(GOOD.replace("layers = [0]", "layers = [1]"))).sha256 != one


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("threads = 1", "thread = 1", "thread: expected one of"),
        ("days = 7", "dys = 7", "keep.dys"),
        ("threads = 1", "threads = 0", "threads: expected a number of at least 1"),
        ("1.5 GB", "much", "keep.bytes"),
        ('["sh", "base.sh", "{{commit}}", "{{cell}}", "{{out}}"]', '["true"]', "base.command: expected"),
        ('variants = ["mmvq:w11", "native:mmq"]', 'variants = ["mmvq"]', "expected pairs such as mmvq:w11, found 'mmvq'"),
        ('variants = ["mmvq:w11", "native:mmq"]', 'variants = ["mmvq:w12"]', "did you mean w11"),
        ('variants = ["mmvq:w11", "native:mmq"]', "", r"pairs\[1\].variants: expected words, found None"),
        ('stages = ["D", "A"]', 'stages = ["D", "B"]', r"stages: expected D, A, U, found B"),
        ("layers = [0]", 'layers = "0"', "layers: expected layer numbers"),
        ('stages = ["D", "A"]', "stages = []", "expected words"),
        ("[[stable]]", "[stable]", "stable: expected .* tables"),
        ("threads = 1", "threads = [", "expected TOML"),
        ('names = ["r*", "none-such"]', 'names = ["right", "right"]\n[[goldens]]\nnames = ["right"]', "golden/right/cpu twice"),
    ],
)
def test_what_is_not_understood_is_refused(written, old, new, said):
    path = written(GOOD.replace(old, new))
    with pytest.raises(InputError, match=said):
        load(path)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="expected a configuration"):
        load(tmp_path / "none.toml")

"""Where differences begin, decided from masks: what a row inherits, and what differs without a reason."""

from __future__ import annotations

import numpy as np

from edge0verify.study.inheritance import OUTPUTS, LayerDiff, inherit

N = 6
NONE = np.zeros(N, bool)


def rows(*which: int) -> np.ndarray:
    mask = NONE.copy()
    mask[list(which)] = True
    return mask


def layer(*, passes=None, unmatched=NONE, reads_rows=False, leave_out=(), **differs) -> LayerDiff:
    names = ["ffn-in", *(tensor for tensors in OUTPUTS.values() for tensor in tensors)]
    found = {name: differs.get(name.replace("-", "_"), NONE) for name in names if name not in leave_out}
    return LayerDiff(differs=found, positions=np.arange(N), passes=passes, unmatched=unmatched, reads_rows=reads_rows)


def test_nothing_differs():
    found = inherit([(0, layer()), (1, layer())])
    assert not found.origins and not found.orphans and not any(mask.any() for mask in found.inherited.values())


def test_a_stage_that_differs_on_equal_inputs_is_an_origin():
    first = layer(d_xl=rows(2, 3), d_xlq=rows(3), a_h=rows(3), a_yl=rows(3), u=rows(3))
    found = inherit([(0, first), (1, layer(ffn_in=rows(3, 4)))])
    assert [(o.layer, o.stage, o.tensor, o.rows, o.position) for o in found.origins] == [(0, "D", "d-xl", 2, 2)]
    assert found.inherited[0, "A"].tolist() == rows(3).tolist() and not found.inherited[0, "D"].any()
    assert found.inherited[0, "U"].tolist() == rows(3).tolist() and found.inherited[1, "D"].tolist() == rows(3, 4).tolist()
    assert not found.orphans and found.first() == "layer 0 D"
    assert found.describe() == "differences begin in D of layer 0 (d-xl, 2 rows from position 2)"


def test_d_xl_is_an_input_only_where_a_kernel_reads_it():
    assert not inherit([(0, layer(d_xl=rows(1)))]).inherited[0, "A"].any()
    assert inherit([(0, layer(d_xl=rows(1), reads_rows=True))]).inherited[0, "A"].tolist() == rows(1).tolist()


def test_another_expert_is_another_input():
    assert inherit([(0, layer(unmatched=rows(5)))]).inherited[0, "A"].tolist() == rows(5).tolist()


def test_attention_looks_back_and_never_ahead():
    found = inherit([(0, layer(d_xl=rows(3), u=rows(3))), (1, layer(ffn_in=rows(1, 2, 3, 4, 5)))])
    assert found.orphans == {1: (2, 1)}
    assert inherit([(0, layer(u=rows(3))), (1, layer(ffn_in=rows(3, 5)))]).orphans == {}


def test_the_first_layer_inherits_from_nobody():
    assert inherit([(0, layer(ffn_in=rows(0, 1)))]).orphans == {0: (2, 0)}


def test_a_later_pass_reads_what_all_layers_wrote_before():
    passes = np.array([0, 0, 0, 1, 1, 2])
    later = [(0, layer(passes=passes, ffn_in=rows(4))), (1, layer(passes=passes, u=rows(2)))]
    assert inherit(later).orphans == {}
    assert inherit([(0, layer(passes=passes, ffn_in=rows(1))), later[1]]).orphans == {0: (1, 1)}


def test_inputs_that_were_not_dumped_may_differ_wherever_something_came_before():
    found = inherit([(0, layer(u=rows(2))), (1, layer(leave_out=("ffn-in",)))])
    assert found.inherited[1, "D"].tolist() == rows(2, 3, 4, 5).tolist() and not found.orphans

"""Every variant of the registry, in every weight format, on every instruction set that this processor runs."""

import pytest

from edge0verify.variants import _kernels
from edge0verify.variants.registry import LINEAR, VARIANTS
from tests.variants.contract import GuardedKernels, VariantContract


def _contract_class(variant, fmt, isa):
    def make_kernels(self, threads=1):
        return GuardedKernels(isa=isa, threads=threads)

    name = f"Test_{variant.stage}_{variant.name}_{fmt}_{isa}"
    members = {"stage": variant.stage, "variant": variant.name, "fmt": fmt, "make_kernels": make_kernels}
    return type(name, (VariantContract,), members)


for _variant in (*VARIANTS, LINEAR):
    for _fmt in _variant.formats:
        for _isa in _kernels.usable_isas():
            _class = _contract_class(_variant, _fmt, _isa)
            globals()[_class.__name__] = _class


def test_every_object_that_was_built_is_either_tested_or_beyond_this_processor():
    beyond = [isa for isa in _kernels.isas() if isa not in _kernels.usable_isas()]
    for isa in beyond:
        print(f"not run: {isa} (this processor lacks it)")
        with pytest.raises(ValueError, match="does not run it"):
            _kernels.set_isa(isa)
    assert "baseline" in _kernels.usable_isas()


def test_every_compiled_symbol_belongs_to_a_registered_variant():
    registered = {v.entry(fmt): v.key(fmt) for v in (*VARIANTS, LINEAR) for fmt in v.formats}
    assert _kernels.symbols() == registered

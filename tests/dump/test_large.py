"""One GiB compared from files in little memory."""

import json

from .test_writer import run

CHILD = """
import json, sys, time
import numpy as np
from edge0verify.dump.onepass import compare_datasets
from edge0verify.dump.reader import open_dump
from edge0verify.dump.writer import DumpWriter
from tests.dump import samples
from tests.memory import peak_kib
rng = np.random.default_rng(1)
x = rng.standard_normal((16384, 1024), dtype=np.float32)
for name, shift in (("a", 0), ("b", 1)):
    with DumpWriter(f"{sys.argv[1]}/{name}.h5", manifest=samples.manifest()) as w:
        for i in range(8):
            w.write(0, "u", x + np.float32(i + shift * 2.0 ** -12))
del x
with open_dump(f"{sys.argv[1]}/a.h5") as a, open_dump(f"{sys.argv[1]}/b.h5") as b:
    begin = time.perf_counter()
    found = compare_datasets(a.dataset(0, "u"), b.dataset(0, "u"))
    spent = time.perf_counter() - begin
print(json.dumps([peak_kib(), found.n, found.max_abs.value, spent]))
"""


def test_a_gibibyte_is_compared_under_300_mebibytes(tmp_path):
    out = run(CHILD.replace("sys.argv[1]", repr(str(tmp_path))))
    assert out.returncode == 0, out.stderr
    peak_kib, n, max_abs, spent = json.loads(out.stdout)
    print(f"peak resident {peak_kib // 1024} MiB, {spent:.2f} s")
    assert n * 4 * 2 == 1 << 30 and 2.0**-13 < max_abs < 2.0**-10
    assert peak_kib < 300 * 1024


def test_the_benchmark_runs_and_names_its_targets(tmp_path):
    words = ["b", "--size", "2", "--repeat", "1", "--h5", "--no-others", "--dir", str(tmp_path)]
    out = run(f"import runpy, sys; sys.argv = {words}; " + "runpy.run_path('benchmarks/bench_onepass.py', run_name='__main__')")
    assert out.returncode in (0, 1) and out.stderr == ""             # two MiB say nothing about the targets themselves
    assert out.stdout.count("  target ") == 5

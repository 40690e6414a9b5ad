"""Tuning tables: exact geometry, nearest T, refusal for another card or version; builds: architectures and options."""

import shutil
import subprocess
from pathlib import Path

import pytest

import edge0verify
from edge0verify.cli.main import run
from edge0verify.records.errors import InputError
from edge0verify.runtime.builds import architectures, build_options, unsafe_options
from edge0verify.runtime.tuning import Geometry, Match, read_product, read_table, read_version, version_text
from edge0verify.study.engine_check import find_tables

TABLES = Path(edge0verify.__file__).parent / "data" / "tuning"
GFX1100 = TABLES / "gfx1100-hipblaslt-100202.txt"


def table(tmp_path, rows, head="STRATA_HIPBLASLT_TUNING_V1 gfx1100 100202"):
    path = tmp_path / "t.txt"
    path.write_text("\n".join(["# ids", head, *rows]) + "\n")
    return path


class TestTable:
    def test_the_tables_that_ship_are_read(self):
        found = read_table(GFX1100)
        assert (found.arch, found.version, version_text(found.version), found.rows) == ("gfx1100", 100202, "1.2.2", 26)
        assert read_table(TABLES / "gfx1101-hipblaslt-100401.txt").arch == "gfx1101"

    @pytest.mark.parametrize(
        ("t", "match"),
        [
            (4096, Match(541, 4096, True)), (8192, Match(542, 8192, True)), (1, Match(541, 4096, False)),
            (6143, Match(541, 4096, False)), (6144, Match(541, 4096, False)), (6145, Match(542, 8192, False)),
            (10**9, Match(542, 8192, False)),
        ],
    )  # fmt: skip
    def test_the_nearest_t_of_the_exact_geometry(self, t, match):
        assert read_table(GFX1100).find(Geometry("bf16", 48, 2560, 96), t) == match

    @pytest.mark.parametrize(
        "product", ["bf16 48 2560 97 4096", "f16 48 2560 96 4096", "bf16 49 2560 96 4096", "bf16 48 2561 96 4096"]
    )
    def test_another_geometry_falls_back(self, product):
        assert read_table(GFX1100).find(*read_product(product)) is None

    def test_another_card_or_version_is_refused(self):
        found = read_table(GFX1100)
        assert found.refused("gfx1100", 100202) is None
        assert "the card is gfx1101" in found.refused("gfx1101", 100202)
        assert "found 1.2.3" in found.refused("gfx1100", 100203)
        assert found.refused(None, None) is None

    @pytest.mark.parametrize("text", ["100202", "1.2.2"])
    def test_versions(self, text):
        assert read_version(text) == 100202

    @pytest.mark.parametrize(
        ("text", "line"), [("bf16 1 2 3 4", 3), ("bf16 1 2 3 4 x", 3), ("bf16 1 2 3 4 -5", 3), ("bf16 1 2 3 4 5 6", 3)]
    )
    def test_a_broken_row_is_named(self, tmp_path, text, line):
        with pytest.raises(InputError, match=f"line {line}"):
            read_table(table(tmp_path, [text]))

    def test_two_solutions_for_one_product_are_refused(self, tmp_path):
        assert read_table(table(tmp_path, ["f16 1 2 3 4 5"] * 2)).rows == 1
        with pytest.raises(InputError, match="line 4"):
            read_table(table(tmp_path, ["f16 1 2 3 4 5", "f16 1 2 3 4 6"]))

    @pytest.mark.parametrize("text", ["bf16 0 2 3 4 5", "bf16 1 2 3 \uff14 5", "bf16 1 2 3 4 \u0665", "bf16 1 2 3 4 0x5"])
    def test_sizes_are_positive_and_digits_are_digits(self, tmp_path, text):
        with pytest.raises(InputError, match="line 3"):
            read_table(table(tmp_path, [text]))

    def test_a_table_without_a_row_is_of_no_use(self, tmp_path):
        assert read_table(table(tmp_path, [])).refused("gfx1100", 100202) == "it holds no product"
        assert run(["doctor", "--tuning", str(tmp_path), "--arch", "gfx1100", "--hipblaslt", "1.2.2"]) == 1

    @pytest.mark.parametrize(
        "head",
        ["", "STRATA_HIPBLASLT_TUNING_V2 gfx1100 100202", "STRATA_HIPBLASLT_TUNING_V1 gfx1100", "STRATA_HIPBLASLT_TUNING_V1 a b"],
    )
    def test_another_head_is_refused(self, tmp_path, head):
        with pytest.raises(InputError, match="line 2"):
            read_table(table(tmp_path, [], head))


class TestDoctor:
    @pytest.mark.parametrize(
        ("arch", "version", "code"),
        [("gfx1100", "1.2.2", 0), ("gfx1100", "100202", 0), ("gfx1101", "100202", 1), ("gfx1100", "1.3.0", 1)],
    )
    def test_exit_codes(self, arch, version, code, capsys):
        assert run(["doctor", "--tuning", str(GFX1100), "--arch", arch, "--hipblaslt", version]) == code
        assert ("refused" in capsys.readouterr().out) == bool(code)

    def test_a_folder_needs_one_that_fits(self):
        assert run(["doctor", "--tuning", str(TABLES), "--arch", "gfx1101", "--hipblaslt", "1.4.1"]) == 0
        assert run(["doctor", "--tuning", str(TABLES), "--arch", "gfx1200", "--hipblaslt", "1.4.1"]) == 1

    def test_products_show_their_solution_or_the_fallback(self, capsys):
        product = ["--product", "bf16 48 2560 96 5000", "--product", "bf16 48 2560 97 5000"]
        assert run(["doctor", "--tuning", str(GFX1100), "--arch", "gfx1100", "--hipblaslt", "1.2.2", *product]) == 0
        shown = capsys.readouterr().out
        assert "solution 541, nearest T 4096" in shown
        assert "no entry of that geometry" in shown

    def test_of_two_tables_that_may_count_each_says_its_solution(self, capsys):
        """Without the card's architecture nobody knows which one an engine reads."""
        assert run(["doctor", "--tuning", str(TABLES), "--product", "bf16 48 2560 96 5000"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert "gfx1100, hipBLASLt 1.2.2: solution 541, nearest T 4096; gfx1101, hipBLASLt 1.4.1: solution 2773" in shown

    def test_a_folder_does_not_pass_by_a_table_with_a_broken_head(self, tmp_path):
        (tmp_path / "gfx1100-hipblaslt-100202.txt").write_text("# ids\nSTRATA_HIPBLASLT_TUNING_V2 gfx1100 100202\n")
        (tmp_path / "notes-on-hipblaslt.txt").write_text("a\nb\n")
        with pytest.raises(InputError, match="line 2"):
            find_tables(tmp_path)

    @pytest.mark.parametrize("words", [["--arch", "gfx1100"], ["--product", "bf16 48 2560 96 1"], ["--hipblaslt", "1.2.2"]])
    def test_words_about_a_table_need_one(self, words):
        assert run(["doctor", *words]) == 2

    def test_input_errors(self, tmp_path):
        assert run(["doctor", "--tuning", str(tmp_path / "none")]) == 2
        assert run(["doctor", "--tuning", str(tmp_path)]) == 2
        assert run(["doctor", "--tuning", str(GFX1100), "--arch", "gfx1100", "--product", "bf16 1"]) == 2


class TestBuilds:
    def test_architectures_of_a_library_with_code_inside(self, tmp_path):
        path = tmp_path / "lib.so"
        path.write_bytes(b"\x7fELF" + bytes(100) + b"amdgcn-amd-amdhsa--gfx1100\0hipv4-amdgcn-amd-amdhsa--gfx1151\0")
        assert architectures(path) == ("gfx1100", "gfx1151")
        assert run(["doctor", "--engine", str(tmp_path), "--arch", "gfx1100"]) == 0
        assert run(["doctor", "--engine", str(tmp_path), "--arch", "gfx1201"]) == 1

    def test_a_file_without_code_has_none(self, tmp_path):
        path = tmp_path / "lib.so"
        path.write_bytes(b"\x7fELF" + bytes(100))
        assert architectures(path) == ()

    def test_code_objects_of_clang(self, tmp_path):
        clang = shutil.which("clang-19")
        if clang is None:
            pytest.skip("not run: no clang-19")
        source = tmp_path / "k.hip"
        source.write_text('extern "C" __attribute__((global)) void k(int* p) { *p = 1; }\n')
        flags = ["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "--offload-arch=gfx1151"]
        subprocess.run([clang, *flags, "-o", str(tmp_path / "k.co"), str(source)], check=True)
        assert architectures(tmp_path / "k.co") == ("gfx1151",)

    def test_options_that_change_results_are_said(self, tmp_path):
        (tmp_path / "build").mkdir()
        (tmp_path / "build" / "CMakeCache.txt").write_text(
            "CMAKE_BUILD_TYPE:STRING=Release\nGPU_TARGETS:STRING=gfx1100;gfx1101\n"
            "CMAKE_HIP_FLAGS:STRING=-O3 -ffast-math\nOTHER:BOOL=ON\n"
        )
        options = build_options(tmp_path)
        assert options["GPU_TARGETS"] == "gfx1100;gfx1101"
        assert "OTHER" not in options
        assert unsafe_options(options) == ["CMAKE_HIP_FLAGS: -ffast-math"]
        assert run(["doctor", "--engine", str(tmp_path), "--arch", "gfx1100"]) == 1

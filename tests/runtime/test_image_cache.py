"""Compiled images: kept once, never used when stale or damaged, never missed when they cannot be kept."""

import pytest

from edge0verify.runtime import image_cache
from edge0verify.runtime.image_cache import VARIABLE, cached


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


class Compiler:
    def __init__(self, image: bytes = b"image") -> None:
        self.image, self.calls = image, 0

    def __call__(self) -> bytes:
        self.calls += 1
        return self.image


def test_compiled_once_per_set_of_facts(folder):
    compiler = Compiler()
    assert cached(compiler, "nvrtc", "13.0", "sm_90") == cached(compiler, "nvrtc", "13.0", "sm_90") == b"image"
    assert compiler.calls == 1
    cached(compiler, "nvrtc", "13.1", "sm_90")
    cached(compiler, "nvrtc", "13.0sm_90")                # no two lists of facts run together
    assert compiler.calls == 3 and len(list(folder.iterdir())) == 3


def test_a_changed_kernel_source_is_compiled_again(folder, tmp_path, monkeypatch):
    kernels = tmp_path / "kernels"
    (kernels / "cuda").mkdir(parents=True)
    header = kernels / "cuda" / "rows.h"
    header.write_text("one")
    monkeypatch.setattr(image_cache, "kernel_folder", lambda: kernels)
    compiler = Compiler()
    cached(compiler, "x")
    header.write_text("two")
    cached(compiler, "x")
    assert compiler.calls == 2


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:40] + b"X" + data[41:], lambda data: b""])
def test_a_damaged_image_is_compiled_again(folder, damage):
    compiler = Compiler(b"a longer image" * 4)
    cached(compiler, "x")
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert cached(compiler, "x") == compiler.image and compiler.calls == 2
    assert cached(compiler, "x") == compiler.image and compiler.calls == 2


def test_a_folder_that_cannot_be_written_costs_no_answer(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "cache"))
    compiler = Compiler()
    assert cached(compiler, "x") == cached(compiler, "x") == b"image" and compiler.calls == 2


def test_it_can_be_turned_off(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = Compiler()
    cached(compiler, "x")
    cached(compiler, "x")
    assert compiler.calls == 2 and not list(tmp_path.iterdir())

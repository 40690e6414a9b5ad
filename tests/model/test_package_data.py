"""What ships with the package: the embedded data is there, and is what the conversion made."""

import hashlib
import json
import tomllib
from pathlib import Path

import edge0verify
from edge0verify.model import load_model
from edge0verify.model.prompts import DATA

ROOT = Path(__file__).resolve().parents[2]
SHA256 = {
    "edge0-mini-q3_k.gguf": "f1769cc2722e8fbbfc162702da98838342301c6fa29e01716d8f9056311b14bd",
    "edge0-mini-projection-q4_0.gguf": "238bfcb62c26bd1191cc79e6f91f710f9900c9d2feeec1dfba783fa8833984c9",
    "config.json": "d8d9c7f6a284035090d52ffe7db6a335be0838c86105bda9ac5aacdf14770cec",
    "prompts4.jsonl": "797bec631b815b456f74d199d8c2de766b57962983d75dfefcd789dbf1b6eaeb",
    "questions40.jsonl": "326aa836d64a09de0146fe651a7abb2783ec6be50a5f0b0ab9eeab6bc3309e41",
    "prompt5268.txt": "b4ba264a462ac5b480c653b41e5dd87d53526fcef8761b6b7c9e4e9f226bc01e",
}


def test_data_files_are_the_converted_ones():
    for name, digest in SHA256.items():
        assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == digest, name
    assert (DATA / "README.md").stat().st_size > 0


def test_data_lies_inside_the_package():
    """The wheel takes the package's folder whole, so a file inside it ships."""
    package = Path(edge0verify.__file__).resolve().parent
    assert package in DATA.parents
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["scikit-build"]["wheel"]["packages"] == ["edge0verify"]
    ignored = (ROOT / ".gitignore").read_text().split()
    assert not {"*.gguf", "*.jsonl", "*.txt", "data/", "edge0verify/data/"} & set(ignored)


def test_checkpoint_config_agrees_with_the_model():
    listed = json.loads((DATA / "config.json").read_text())["tensors"]
    assert {name: list(t.shape) for name, t in load_model().tensors.items()} == {name: shape for name, (shape, _) in listed.items()}


def test_scripts_and_licence_are_there():
    for name in ("train_edge0_mini.py", "convert_edge0_mini.py"):
        compile((ROOT / "tools" / name).read_text(), name, "exec")
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]

"""Tokenizer, prompts and questions."""

import json

import numpy as np
import pytest

from edge0verify.model import decode, encode, prompt, prompt_file, prompt_names, questions
from edge0verify.model.prompts import DATA
from edge0verify.records.errors import InputError


def test_encode_and_decode():
    assert encode("Aé").tolist() == [256, 65, 0xC3, 0xA9]
    assert encode("A", bos=False, eos=True).tolist() == [65, 257]
    assert encode("").dtype == np.int32 and encode("").tolist() == [256]
    every = bytes(range(256))
    assert decode(encode(every)) == every
    assert decode([256, 72, 105, 257]) == b"Hi" and decode([]) == b""
    with pytest.raises(InputError, match="found 258 at position 1"):
        decode([72, 258])


def test_prompts():
    rows = [json.loads(line) for line in (DATA / "prompts4.jsonl").read_text("utf-8").splitlines()]
    assert [row["name"] for row in rows] == list(prompt_names()[:4])
    for i, row in enumerate(rows, 1):
        assert prompt(row["name"]) == prompt(f"p{i}") == row["prompt"]
    assert [len(encode(prompt(f"p{i}"))) for i in range(1, 5)] == [192, 151, 166, 152]
    assert len(encode(prompt("long"))) == 5268
    assert prompt("long").encode() == (DATA / "prompt5268.txt").read_bytes()
    with pytest.raises(InputError, match="expected one of prose, questions, code, list, long"):
        prompt("p6")


def test_prompt_files(tmp_path):
    file = tmp_path / "a.txt"
    file.write_bytes(b"one\r\ntwo\xff")
    assert prompt_file(file) == b"one\r\ntwo\xff"
    file.write_bytes(b"")
    with pytest.raises(InputError, match="empty file"):
        prompt_file(file)
    with pytest.raises(InputError, match=r"none\.txt: .*No such file"):
        prompt_file(tmp_path / "none.txt")


def test_questions():
    assert len(questions()) == 40
    assert sum(q.held_out for q in questions()) == 28
    assert questions()[0].prompt == "Q: What is 83 + 29?\nA:" and questions()[0].answer == "112"

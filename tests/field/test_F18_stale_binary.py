"""F18: a stale binary was compared with itself, and called two builds."""

from edge0verify.nightly.base import Here, weigh

BASE, HEAD = "a" * 40, "b" * 40


def asked(*, status="FAIL", binary="old", kernels="old sources"):
    """What the base says to a cell that fails on the head, whose binary and sources are new."""
    found = {"commit": BASE, "status": status, "source": "run there", "binary_sha256": binary, "kernels_sha256": kernels}
    return weigh(found, Here(commit=HEAD, binary_sha256="new", kernels_sha256="new sources"), BASE)


def test_two_builds_tell_whose_fault_it_is():
    assert asked()["not_this_change"]
    assert asked(status="PASS")["text"].startswith("this change")


def test_one_binary_under_two_commits_tells_nothing():
    for status in ("FAIL", "PASS"):
        answer = asked(status=status, binary="new")
        assert not answer["not_this_change"]
        assert "same binary" in answer["text"] and "not known whether it is this change" in answer["text"]


def test_one_binary_is_no_suspicion_where_no_kernel_changed():
    assert asked(binary="new", kernels="new sources")["not_this_change"]

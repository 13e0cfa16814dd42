"""Shares of a GPU under MPS: never more than was given, and only what the tool reads right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.mps import MpsShare, equal_shares, memory_limit_text, uneven_shares
from headway.core.units import GIB, MIB

PROCESSES = st.lists(st.integers(1, 8), min_size=1, max_size=12)


@given(PROCESSES, st.integers(1, 400))
def test_equal_shares_never_add_up_to_more_than_the_device(processes, memory_gib):
    shares = equal_shares(processes, memory_bytes=memory_gib * GIB)
    given_out = list(zip(shares, processes, strict=True))
    assert sum(share.thread_percentage * count for share, count in given_out) <= 100
    assert sum(share.memory_limit_mib * MIB * count for share, count in given_out) <= (
        memory_gib * GIB
    )


@given(PROCESSES)
def test_rounding_takes_less_than_one_percent_from_a_process(processes):
    for share, count in zip(equal_shares(processes), processes, strict=True):
        exact = 100 / len(processes) / count
        assert exact - 1 < share.thread_percentage <= exact


@given(st.integers(1, 100), st.integers(1, 100))
def test_a_part_that_is_a_whole_percentage_stays_one(percentage, processes):
    if percentage % processes:
        return
    (share,) = uneven_shares([percentage / 100], [processes])
    assert share.thread_percentage == percentage // processes


def test_more_overlap_gives_more_and_never_more_than_all():
    assert [equal_shares([1] * 4, overlap=2.0)[0].thread_percentage] == [50]
    assert equal_shares([1], overlap=2.0)[0].thread_percentage == 100


@pytest.mark.parametrize(
    ("parts", "processes", "memory", "words"),
    [
        ([0.0], [1], None, "above 0"),
        ([1.01], [1], None, "at most 1"),
        ([0.5], [0], None, "0 processes"),
        ([0.05], [6], None, "less than 1% each; put fewer jobs"),
        ([0.5], [2], [MIB], "less than 1 MiB each"),
        ([float("nan")], [1], None, "above 0"),
        ([0.5, 0.5], [1], None, "shorter"),
    ],
)
def test_what_cannot_be_written_is_refused(parts, processes, memory, words):
    with pytest.raises(ValueError, match=words):
        uneven_shares(parts, processes, memory_bytes=memory)


def test_nobody_is_given_nothing():
    with pytest.raises(ValueError, match="no job"):
        equal_shares([])


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_would_be_read_as_none_is_refused(limit):
    with pytest.raises(ValueError, match="would be read as none"):
        memory_limit_text(limit)


def test_a_client_is_told_by_its_environment():
    assert MpsShare(16, 1500).environment(device=1) == {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "16",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "1=1500M",
    }
    assert MpsShare(100).environment() == {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}

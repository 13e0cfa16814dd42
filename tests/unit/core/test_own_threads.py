import pytest

from headway.core.threads import default_threads, own_threads
from headway.testing.machines import fake_machine
from headway.testing.queues import fake_job


@pytest.mark.parametrize("text", ["", "0", "all", "-1", "$N"])
def test_what_is_no_count_is_none(text):
    assert own_threads(fake_job("a"), {"OMP_NUM_THREADS": text}) is None


@pytest.mark.parametrize(
    ("asked", "environment", "count"),
    [
        ({}, {}, 4),
        ({}, {"OMP_NUM_THREADS": "2"}, 2),
        ({"threads": 3}, {"OMP_NUM_THREADS": "2"}, 3),
        ({"env": (("MKL_NUM_THREADS", "1"),)}, {}, 1),
    ],
)
def test_the_users_count_comes_before_one_thread_a_core(asked, environment, count):
    assert default_threads(fake_job("a", **asked), fake_machine(cores=4), environment) == count

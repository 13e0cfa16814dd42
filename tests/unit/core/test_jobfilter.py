import pytest

from headway.core.errors import UsageError
from headway.core.jobfilter import kept
from headway.testing.queues import fake_job, fake_jobs

LIST = [fake_job(name) for name in ("cnn", "lstm-1", "lstm-2", "lstm-10", "Lstm-3", "big", "big-2")]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ([], "cnn lstm-1 lstm-2 lstm-10 Lstm-3 big big-2"),
        (["lstm-*"], "lstm-1 lstm-2 lstm-10"),
        (["lstm-?"], "lstm-1 lstm-2"),
        (["[lL]stm-[!1]"], "lstm-2 Lstm-3"),
        (["big", "cnn"], "cnn big"),
        (["!big*"], "cnn lstm-1 lstm-2 lstm-10 Lstm-3"),
        (["!*-2", "lstm-*", "big*"], "lstm-1 lstm-10 big"),
        (["lstm-1", "lstm-*", "!lstm-1"], "lstm-2 lstm-10"),
    ],
)
def test_who_is_kept_in_the_order_of_the_list(patterns, names):
    assert [job.name for job in kept(LIST, patterns)] == names.split()


def refusal(jobs, *patterns):
    with pytest.raises(UsageError) as caught:
        kept(jobs, patterns)
    return str(caught.value)


def test_a_pattern_that_matches_nothing_shows_names():
    assert refusal(LIST, "big*", "lstm") == (
        "--filter 'lstm' matches the name of no job; there are: "
        "cnn, lstm-1, lstm-2, lstm-10, Lstm-3, big, big-2"
    )
    assert refusal(fake_jobs(20), "!x").endswith("job-7, job-8 and 12 more")
    assert "'!'" in refusal(LIST, "!")
    assert "***" in refusal([fake_job("a")], "HF_TOKEN=hf_abcdefabcdefabcdef")


def test_keeping_none_is_refused():
    assert refusal(LIST, "big*", "!b*") == (
        "--filter 'big*' '!b*' keeps none of 7 jobs; nothing was started"
    )


def test_a_job_is_not_kept_without_what_it_needs():
    jobs = [fake_job("train"), fake_job("eval", after=("train",)), fake_job("other")]
    assert refusal(jobs, "eval") == (
        '--filter keeps "eval", which runs after "train", but leaves that one out; add --filter '
        "'train', or leave both out"
    )
    assert [job.name for job in kept(jobs, ["train"])] == ["train"]
    assert [job.name for job in kept(jobs, ["train", "eval"])] == ["train", "eval"]


def test_a_group_is_kept_whole_or_not_at_all():
    jobs = [fake_job("server", group="g"), fake_job("client", group="g"), fake_job("other")]
    assert '"client", which starts together with "server"' in refusal(jobs, "client", "other")
    assert [job.name for job in kept(jobs, ["other"])] == ["other"]

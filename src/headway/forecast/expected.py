"""What was known of a list, and expected of it, when its run began."""

from collections.abc import Sequence
from typing import Self

from headway.core.estimate import Estimate
from headway.core.noun import Noun
from headway.core.workload import Workload
from headway.forecast.queue import Forecast, JobForecast


class Expected(Noun):
    """The makespan and the jobs of a forecast, and what was known of each job at that time.

    `jobs` and `workloads` are in the order of the list; `workloads` is empty where nobody looked.
    """

    makespan: Estimate
    jobs: tuple[JobForecast, ...]
    workloads: tuple[Workload, ...] = ()

    @classmethod
    def of(cls, forecast: Forecast, workloads: Sequence[Workload]) -> Self:
        """What a forecast that was made from these workloads expects."""
        return cls(makespan=forecast.makespan, jobs=forecast.jobs, workloads=tuple(workloads))

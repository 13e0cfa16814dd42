"""What every Policy and every noun must keep to, whatever else it does.

`CheckedPolicy` wraps a policy and looks at each of its answers while it drives a world; and
`check_policy` does so on a whole queue in the simulated world. Tests run them for every leaf of the
table, and so can whoever writes a leaf of their own.
"""

import json
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import fields

import pytest

from headway.core import tables
from headway.core.errors import BadFile, UnknownName
from headway.core.noun import Noun
from headway.core.plan import Plan
from headway.core.policy import Policy
from headway.core.view import JobState, View
from headway.core.words import (
    Action,
    Event,
    Exited,
    Memory,
    Replan,
    Reserve,
    Reshare,
    Retry,
    Settle,
    Start,
    Stop,
    Wait,
)
from headway.sim.drive import drive
from headway.sim.world import SimulatedWorld
from headway.testing.queues import FakeQueue

PLANNERS = "headway.planners"


class CheckedPolicy(Policy):
    """Answers as `policy` does, and fails with AssertionError where an answer breaks a rule."""

    policy: Policy

    def start(self, view: View) -> Memory:
        """The policy's first memory, which must be plain JSON."""
        memory = self.policy.start(view)
        assert plain(memory) == memory, f"memory is not plain JSON: {memory}"
        return memory

    def decide(self, memory: Memory, event: Event, view: View) -> tuple[Memory, Sequence[Action]]:
        """The policy's answer, looked at."""
        seen, kept = snapshot(view), json.dumps(memory, sort_keys=True)
        new, actions = self.policy.decide(memory, event, view)
        assert snapshot(view) == seen, f"the view was changed while answering {event}"
        assert json.dumps(memory, sort_keys=True) == kept, f"{event} changed the memory given"
        assert plain(new) == new, f"memory is not plain JSON: {new}"
        again = self.policy.decide(plain(memory), event, view)
        assert (again[0], list(again[1])) == (new, list(actions)), f"two answers to {event}"
        check_actions(actions, event, view)
        slots = getattr(self.policy, "slots", None)
        starts = sum(isinstance(action, Start) for action in actions)
        assert not (starts and slots) or len(view.running) + starts <= slots, "more than its slots"
        return new, actions


def plain(memory: Memory) -> Memory:
    """The memory as a journal gives it back."""
    restored: Memory = json.loads(json.dumps(memory))
    return restored


def snapshot(view: View) -> str:
    """All that a policy could change in a view."""
    constant = {"machine", "states", "job", "placement"}
    things: list[View | JobState] = [view, *view.states]
    parts = [
        f"{field.name}={getattr(thing, field.name)!r}"
        for thing in things
        for field in fields(thing)
        if field.name not in constant and field.name != "running"
    ]
    return " ".join([*parts, f"running={list(view.running)}"])


def check_actions(actions: Sequence[Action], event: Event, view: View) -> None:
    """Whether a world can do all of this: every rule that does not depend on the policy.

    Raises:
        AssertionError: An action contradicts the view, the event or another action.
    """
    starts = [action for action in actions if isinstance(action, Start)]
    _check_starts(starts, actions, view)
    answers = [a for a in actions if isinstance(a, (Retry, Settle))]
    if isinstance(event, Exited):
        told = [answer for answer in answers if answer.job == event.job]
        assert len(told) == 1, f"{event} needs one Settle or Retry, got {told}"
    assert len({answer.job for answer in answers}) == len(answers), f"settled twice: {answers}"
    for action in actions:
        if isinstance(action, Replan):
            assert action.reason, f"{action} without words"
            continue
        state = view.states[action.job]
        if isinstance(action, (Stop, Reserve, Reshare)):
            assert action.job in view.running, f"{action} of a job that does not run"
        if isinstance(action, Stop):
            assert not state.stopping, f"{action} of a job that is stopping"
            assert action.reason, f"{action} without words"
        if isinstance(action, Reserve):
            assert action.reserved_bytes >= 0, f"{action} is below 0"
        if isinstance(action, Reshare):
            assert action.cores, f"{action} leaves no core"
            assert set(action.cores) <= set(view.machine.host.cores), f"{action} beyond the machine"
        if isinstance(action, Wait):
            assert state.queued, f"{action} of a job that does not wait"
            assert action.reason, f"{action} without words"


def _check_starts(starts: Sequence[Start], actions: Sequence[Action], view: View) -> None:
    assert not (starts and view.draining), f"starts while draining: {starts}"
    assert len({start.job for start in starts}) == len(starts), f"one job twice: {starts}"
    free_cores, free_devices = set(view.free_cores), set(view.free_devices)
    free_bytes = view.free_bytes
    lodged = _lodged(view)
    for start in starts:
        state, share = view.states[start.job], start.share
        back = any(isinstance(a, Retry) and a.job == start.job for a in actions)
        assert state.queued or back, f"{start} of a job that does not wait"
        if share.cores is not None:
            assert share.cores, f"{start} on no core"
            assert len(set(share.cores)) == len(share.cores), f"{start}: a core twice"
            assert free_cores.issuperset(share.cores), f"{start}: a core that is not free"
            free_cores.difference_update(share.cores)
        assert len(set(share.devices)) == len(share.devices), f"{start}: a device twice"
        _check_devices(start, free_devices, lodged, view)
        free_devices.difference_update(share.devices)
        assert share.reserved_bytes >= 0, f"{start} reserves less than nothing"
        free_bytes -= share.reserved_bytes
        if share.alone:
            groups = {view.states[other.job].job.group for other in starts}
            together = len(starts) == 1 or (len(groups) == 1 and None not in groups)
            assert not view.running, f"{start}: alone beside others"
            assert together, f"{start}: alone beside others"
    others = any(state.share is not None and state.share.alone for state in view.running.values())
    assert not (starts and others), f"{starts} beside a job that has the machine to itself"
    if any(start.share.alone for start in starts):
        assert not view.elsewhere.jobs, f"{starts}: alone beside jobs of other runs"
    reserved = sum(start.share.reserved_bytes for start in starts)
    assert free_bytes >= 0 or not reserved, f"{starts} reserve {-free_bytes} bytes too many"


def _lodged(view: View) -> dict[int, int]:
    """Bytes that are given of each device which may be given to more jobs."""
    lodged: dict[int, int] = {}
    for state in view.running.values():
        if state.share is not None and state.share.device_bytes is not None:
            for device in state.share.devices:
                lodged[device] = lodged.get(device, 0) + state.share.device_bytes
    return lodged


def _check_devices(
    start: Start, free_devices: Set[int], lodged: dict[int, int], view: View
) -> None:
    """Whether a start's devices are free, or shared by all on them; adds to what is given."""
    share = start.share
    for index in share.devices:
        shared = share.device_bytes is not None and index in lodged
        assert shared or index in free_devices, f"{start}: a device that is not free"
        if share.device_bytes is None:
            continue
        lodged[index] = lodged.get(index, 0) + share.device_bytes
        memory_bytes = view.machine.devices[index].memory_bytes
        assert memory_bytes is not None, f"{start}: shares a device of unknown memory"
        assert lodged[index] <= memory_bytes, f"{start}: more than device {index} has"


def check_policy(
    policy: Policy,
    plan: Plan,
    queue: FakeQueue,
    *,
    watch: Callable[[Event, View], None] | None = None,
) -> SimulatedWorld:
    """Drive a policy through a queue, every answer checked, twice.

    Args:
        policy: The one to check.
        plan: Its placements.
        queue: What is to be done, and what becomes of it.
        watch: As in `drive`; may change in the view what others use.

    Returns:
        The world as it ended.

    Raises:
        AssertionError: A rule is broken, a job has no or two last words, or the two drives differ.
    """
    worlds = [queue.world(plan), queue.world(plan)]
    drive(CheckedPolicy(policy=policy), worlds[0], watch=watch)
    drive(policy, worlds[1], watch=watch)
    world = worlds[0]
    assert world.words == worlds[1].words, "the same queue gave other words the second time"
    settled = [word.job for _, word in world.words if isinstance(word, Settle)]
    assert sorted(settled) == list(range(len(queue.jobs))), f"last words: {sorted(settled)}"
    check_attempts(world)
    return world


def check_attempts(world: SimulatedWorld) -> None:
    """Never two attempts of a job at once, and after an end nothing but the next attempt.

    Raises:
        AssertionError: A job was started while it ran, or ended while it did not.
    """
    running: set[int] = set()
    for t, word in world.words:
        if isinstance(word, Start):
            assert word.job not in running, f"job {word.job} is started again at {t}"
            running.add(word.job)
        elif isinstance(word, Exited):
            assert word.job in running, f"job {word.job} ends at {t}, but was not running"
            running.remove(word.job)
        elif isinstance(word, Settle):
            assert word.job not in running, f"job {word.job} is settled at {t} while it runs"
    assert not running, f"still running at the end: {sorted(running)}"
    assert not world.view.running
    assert world.view.reserved_bytes == 0
    others = world.view.elsewhere.cores
    assert world.view.free_cores == set(world.view.machine.host.cores) - others


def policies() -> Iterator[type[Policy]]:
    """The policy of every leaf in planners/ that has one."""
    for name in tables.names(PLANNERS):
        try:
            yield tables.load(PLANNERS, name, Policy)
        except UnknownName:
            continue


def check_noun(noun: Noun) -> None:
    """JSON and back; newer schemas and unknown fields are refused by name; it is frozen.

    Raises:
        AssertionError: Something is not as it was, or was not refused.
    """
    kind = type(noun)
    text = noun.to_json()
    assert json.loads(text)["schema"] == kind.schema_number
    assert kind.from_json(text, source="x") == noun
    assert kind.from_json(noun.to_json(indent=1), source="x").to_json() == text
    newer = text.replace(f'"schema": {kind.schema_number}', '"schema": 999', 1)
    with pytest.raises(BadFile, match=f"{kind.__name__} schema 999"):
        kind.from_json(newer, source="x")
    with pytest.raises(BadFile, match='unknown field "no_such_field"'):
        kind.from_json(json.dumps({**json.loads(text), "no_such_field": 1}), source="x")
    for field in kind.model_fields:
        try:
            setattr(noun, field, None)
        except ValueError:
            continue
        raise AssertionError(f"{kind.__name__}.{field} can be changed")

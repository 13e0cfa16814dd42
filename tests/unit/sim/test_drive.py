"""The one loop: an event, a decision, all of it done or none."""

from headway.core.policy import Policy
from headway.core.words import Arrived, Settle, Tick
from headway.sim.drive import drive
from headway.testing.queues import FakeQueue, fake_job


class Counting(Policy):
    """Settles what arrives, and counts its decisions in its memory."""

    def start(self, view):
        return {"decisions": 0}

    def decide(self, memory, event, view):
        new = {"decisions": memory["decisions"] + 1}
        return new, [Settle(0, "cancelled", "")] if isinstance(event, Arrived) else []


class Outdated:
    """A world whose view is out of date at the first two attempts to do something."""

    def __init__(self):
        queue = FakeQueue(jobs=[fake_job("a")])
        self.view = queue.world(queue.plan("serial")).view
        self.events = [Arrived(0, 0), Tick(1)]
        self.refusals = 2
        self.done, self.remembered = [], []

    def recall(self):
        return None

    def next(self):
        return self.events.pop(0) if self.events else None

    def perform(self, *actions):
        if actions and self.refusals:
            self.refusals -= 1
            return False
        self.done.extend(actions)
        return True

    def remember(self, memory):
        self.remembered.append(memory)


def test_what_was_decided_from_an_outdated_view_is_decided_again_from_the_same_memory():
    world, seen = Outdated(), []
    drive(Counting(), world, watch=lambda event, _: seen.append(event))
    assert world.done == [Settle(0, "cancelled", "")]
    assert world.remembered == [{"decisions": 1}, {"decisions": 2}], "refusals leave no trace"
    assert seen == [Arrived(0, 0), Tick(1)]

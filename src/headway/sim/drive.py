"""The one loop that lets a policy drive a world, simulated or real."""

from collections.abc import Callable

from headway.core.policy import Policy, World
from headway.core.view import View
from headway.core.words import Event


def drive(
    policy: Policy, world: World, *, watch: Callable[[Event, View], None] | None = None
) -> None:
    """Until the world has nothing left to wait for: take an event, decide, act.

    A decision is done whole or not at all: where the world says that the view was out of date, the
    policy, which is pure, decides again. The world journals what it performs; the policy's memory
    goes with it whenever it changed.

    Args:
        policy: Decides; pure.
        world: Acts; its `next` blocks in real worlds and jumps in simulated ones.
        watch: Called after each event has been answered, to show progress.
    """
    recalled = world.recall()
    memory = policy.start(world.view) if recalled is None else recalled
    while (event := world.next()) is not None:
        kept = memory
        memory, actions = policy.decide(kept, event, world.view)
        while not world.perform(*actions):
            memory, actions = policy.decide(kept, event, world.view)
        if memory is not kept:
            world.remember(memory)
        if watch is not None:
            watch(event, world.view)

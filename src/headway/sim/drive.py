"""The one loop that lets a policy drive a world, simulated or real."""

from collections.abc import Callable, Sequence

from headway.core.plan import Placement
from headway.core.policy import Policy, World
from headway.core.view import View
from headway.core.words import Event, Replan

Replanner = Callable[[View], Sequence[Placement] | None]


def drive(
    policy: Policy,
    world: World,
    *,
    watch: Callable[[Event, View], None] | None = None,
    replan: Replanner | None = None,
) -> None:
    """Until the world has nothing left to wait for: take an event, decide, act.

    The world journals what it performs; the policy's memory goes with it whenever it changed.

    Args:
        policy: Decides; pure.
        world: Acts; its `next` blocks in real worlds and jumps in simulated ones.
        watch: Called after each event has been answered, to show progress.
        replan: Asked for other placements, one a job, whenever the policy has learnt something;
            None from it leaves them as they are.
    """
    recalled = world.recall()
    memory = policy.start(world.view) if recalled is None else recalled
    while (event := world.next()) is not None:
        kept = memory
        memory, actions = policy.decide(memory, event, world.view)
        learnt = ""
        for action in actions:
            if isinstance(action, Replan):
                learnt = action.reason
            else:
                world.perform(action)
        if memory is not kept:
            world.remember(memory)
        if watch is not None:
            watch(event, world.view)
        if learnt:  # by whoever watches, too
            world.replan(replan(world.view) if replan is not None else None, learnt)

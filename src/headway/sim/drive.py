"""The one loop that lets a policy drive a world, simulated or real."""

from collections.abc import Callable, Mapping, Sequence

from headway.core.plan import Placement
from headway.core.policy import Policy, World
from headway.core.view import View
from headway.core.words import Action, Event, Replan

Replanner = Callable[[View], Mapping[int, Placement]]


def drive(
    policy: Policy,
    world: World,
    *,
    watch: Callable[[Event, View], None] | None = None,
    replan: Replanner | None = None,
) -> None:
    """Until the world has nothing left to wait for: take an event, decide, act.

    A decision is done whole or not at all: where the world says that the view was out of date, the
    policy, which is pure, decides again. The world journals what it performs; the policy's memory
    goes with it whenever it changed.

    Args:
        policy: Decides; pure.
        world: Acts; its `next` blocks in real worlds and jumps in simulated ones.
        watch: Called after each event has been answered, to show progress.
        replan: Asked for other placements, by job, whenever the policy has learnt something.
    """
    recalled = world.recall()
    memory = policy.start(world.view) if recalled is None else recalled
    while (event := world.next()) is not None:
        kept = memory
        memory, actions = policy.decide(kept, event, world.view)
        while not world.perform(*_for_world(actions)):
            memory, actions = policy.decide(kept, event, world.view)
        learnt = next((action.reason for action in actions if isinstance(action, Replan)), "")
        if memory is not kept:
            world.remember(memory)
        if watch is not None:
            watch(event, world.view)
        if learnt:  # by whoever watches, too
            world.replan({} if replan is None else replan(world.view), learnt)


def _for_world(actions: Sequence[Action]) -> list[Action]:
    """What the world is to do: a plan is not made there."""
    return [action for action in actions if not isinstance(action, Replan)]

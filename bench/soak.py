"""Soak: everything that may go wrong, many times; nothing lost, nothing twice, no false success.

Run as `python bench/soak.py [--count N] [--only NAME ...] [--json]`, as root with writable v1
cgroups. Without --count each kind runs as often as its bar says. One line a kind: how many of how
many were right, and the seconds. Exit 1 where any falls short, with what was wrong on stderr.

A reboot is simulated: a killed run's journal and claims get another boot's id.
"""

import argparse
import json
import sys
import time

import soak_kills
import soak_memory
import soak_trees
from supervised import can_use_groups, places

KINDS = {
    "own-cap": (soak_memory.own_cap, 5),
    "inherited": (soak_memory.inherited, 5),
    "nested": (soak_memory.nested, 5),
    "rlimit": (soak_memory.rlimit, 5),
    "allocator": (soak_memory.allocator, 5),
    "foreign-kill": (soak_memory.foreign_kill, 20),
    "exit-137": (soak_memory.exit_137, 10),
    "page-cache": (soak_memory.page_cache, 10),
    "hidden-child": (soak_memory.hidden_child, 10),
    "random-kill": (soak_kills.random_kill, 60),
    "after-intent": (soak_kills.after_intent, 10),
    "after-spawn": (soak_kills.after_spawn, 10),
    "after-claim": (soak_kills.after_claim, 10),
    "after-result": (soak_kills.after_result, 10),
    "zygote-kill": (soak_kills.zygote_kill, 10),
    "keeper-claim": (soak_kills.keeper_after_claim, 5),
    "keeper-result": (soak_kills.keeper_after_result, 5),
    "full-disk": (soak_kills.full_disk, 3),
    "reboot": (soak_kills.reboot, 5),
    "tree-groups": (soak_trees.with_groups, 10),
    "tree-without": (soak_trees.without_groups, 10),
}
"""Each kind by name: what does it, and how often."""


def soak(name: str, count: int) -> dict[str, object]:
    """Run one kind; gives its name, how many were right, of how many, seconds, and the failures."""
    action = KINDS[name][0]
    began_s = time.perf_counter()
    with places() as make:
        failures = action(make, count)
    seconds = round(time.perf_counter() - began_s, 1)
    right = max(0, count - len(failures))
    return {"kind": name, "right": right, "count": count, "s": seconds, "failures": failures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, help="of each kind, instead of the bar's own number")
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    chosen = parser.parse_args()
    if reason := can_use_groups():
        sys.exit(f"cannot soak here: {reason}")
    short = False
    for name in chosen.only:
        told = soak(name, chosen.count or KINDS[name][1])
        line = f"{name:14} {told['right']:3} of {told['count']:3}   {told['s']:6} s"
        print(json.dumps(told) if chosen.json else line, flush=True)
        for failure in told["failures"]:
            print(f"  {name}: {failure}", file=sys.stderr, flush=True)
        short = short or bool(told["failures"])
    sys.exit(short)


if __name__ == "__main__":
    main()

"""What a start costs: `true` through the zygote, with claim, started and exit records.

Run as `python bench/starts.py [COUNT]`; prints milliseconds a start with 2 and with 8 in flight,
and the memory (PSS) of the zygote with 8 idle keepers.
"""

import argparse
import os
import select
import tempfile
import time
from contextlib import closing
from pathlib import Path

from headway.engines.local.attempts import AttemptFolder, open_keeper
from headway.engines.local.zygote import StartRequest, Zygote
from headway.system import procfs

IDLE_KEEPERS = 8


def request(run: Path, number: int, command: str) -> StartRequest:
    folder = AttemptFolder.of(run, job=number, attempt=1)
    folder.make()
    argv = ["/bin/sh", "-c", command]
    return StartRequest(identifier=number, folder=folder.path, argv=argv, cwd=run)


def starts_s(run: Path, *, count: int, in_flight: int) -> float:
    """Seconds to bring `count` commands to their exit records, `in_flight` at a time."""
    with closing(Zygote.start(os.environ)) as zygote:
        begin_s = time.perf_counter()
        poller = select.poll()
        poller.register(zygote.fileno(), select.POLLIN)
        keepers: dict[int, AttemptFolder] = {}
        submitted = ended = 0
        while ended < count:
            while submitted < count and submitted - ended < in_flight:
                submitted += 1
                zygote.submit(request(run, submitted, "true"))
            for reply in zygote.replies():
                assert reply.error is None, reply.error
                folder = AttemptFolder.of(run, job=reply.identifier, attempt=1)
                claim = folder.read_claim()
                assert claim is not None
                keeper = open_keeper(claim)
                if keeper is None:
                    ended += check(folder)
                else:
                    keepers[keeper] = folder
                    poller.register(keeper, select.POLLIN)
            if ended == count:
                break
            if submitted < count and submitted - ended < in_flight:
                continue
            for descriptor, _ in poller.poll():
                if descriptor in keepers:
                    poller.unregister(descriptor)
                    os.close(descriptor)
                    ended += check(keepers.pop(descriptor))
        return time.perf_counter() - begin_s


def check(folder: AttemptFolder) -> int:
    record = folder.read_exit()
    assert record is not None, folder
    assert record.exit_code == 0, record
    return 1


def memory_kib(run: Path) -> tuple[int, list[int]]:
    """PSS of a zygote and of its keepers, each waiting for a command, in KiB."""
    with closing(Zygote.start(os.environ)) as zygote:
        for number in range(1, IDLE_KEEPERS + 1):
            zygote.submit(request(run, number, f"read line < {run}/gate"))
        keepers: list[int] = []
        while len(keepers) < IDLE_KEEPERS:
            select.select([zygote], [], [])
            keepers += [reply.keeper_pid or 0 for reply in zygote.replies()]
        folders = [AttemptFolder.of(run, job=n + 1, attempt=1) for n in range(IDLE_KEEPERS)]
        while any(folder.read_started() is None for folder in folders):
            os.sched_yield()
        return pss_kib(zygote.pid), [pss_kib(pid) for pid in keepers]


def pss_kib(pid: int) -> int:
    found = procfs.pss_bytes(pid)
    assert found is not None, pid
    return found // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=1000)
    count = parser.parse_args().count
    for in_flight in (2, 8):
        with tempfile.TemporaryDirectory() as place:
            seconds = starts_s(Path(place), count=count, in_flight=in_flight)
        each_ms = seconds / count * 1000
        print(f"{count} starts, {in_flight} in flight: {seconds:.2f} s, {each_ms:.2f} ms each")
    with tempfile.TemporaryDirectory() as place:
        os.mkfifo(f"{place}/gate")
        try:
            zygote, keepers = memory_kib(Path(place))
        finally:
            os.close(os.open(f"{place}/gate", os.O_RDWR | os.O_NONBLOCK))  # the commands go on
    total_mib = (zygote + sum(keepers)) / 1024
    print(f"PSS: zygote {zygote} KiB, keepers {keepers} KiB, together {total_mib:.1f} MiB")


if __name__ == "__main__":
    main()

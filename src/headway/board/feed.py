"""The newest page of a run, looked for as long as somebody reads it, and never at a high price."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable

from headway.board.glance import Glance
from headway.board.versions import Versions
from headway.core.errors import HeadwayError

# Looking costs time of a core that jobs could use: at most a tenth of one.
LEAST_PAUSE_S = 0.5
PAUSES = 10
# A line from time to time tells a reader who has gone from one who has nothing to hear.
SILENCE_S = 15.0


class Feed:
    """Looks again and again while there are readers, and tells them what changed."""

    def __init__(self, look: Callable[[], Glance]) -> None:
        self._look = look
        self._versions = Versions()
        self._live = True
        self._trouble = ""
        self._looked_s = -LEAST_PAUSE_S
        self._took_s = 0.0
        self._news = asyncio.Condition()
        self._one_looks = asyncio.Lock()
        self._readers = 0
        self._looking: asyncio.Task[None] | None = None

    async def page(self) -> str:
        """The whole page as it is now.

        Raises:
            HeadwayError: It cannot be told.
        """
        await self._look_once()
        if self._versions.pieces is None:
            raise HeadwayError(self._trouble)
        return self._versions.pieces.page(live=self._versions.version)

    async def events(self, since: str) -> AsyncIterator[str]:
        """What happens after a version, as server-sent events, without an end."""
        self._readers += 1
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_on())
        try:
            yield "retry: 1000\n\n"
            told = (since, "", True)
            while True:
                if await self._another_than(told):
                    before, told = told[0], self._state
                    yield self._event(before)
                else:
                    yield ": nothing new\n\n"
        finally:
            self._readers -= 1
            if not self._readers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _another_than(self, told: tuple[str, str, bool]) -> bool:
        """Whether there is something to tell; waits for it for a while."""

        def news() -> bool:
            return self._state != told and self._versions.pieces is not None

        async with self._news:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait_for(news), SILENCE_S)
            return news()

    @property
    def _pause_s(self) -> float:
        return max(LEAST_PAUSE_S, PAUSES * self._took_s)

    @property
    def _state(self) -> tuple[str, str, bool]:
        return self._versions.version, self._trouble, self._live

    def _event(self, since: str) -> str:
        change = self._versions.since(since)
        data = {
            "title": change.title,
            "pieces": dict(change.pieces),
            "live": self._live,
            "trouble": self._trouble,
        }
        return f"id: {change.version}\nevent: pieces\ndata: {json.dumps(data)}\n\n"

    async def _look_on(self) -> None:
        while True:
            await self._look_once()
            await asyncio.sleep(self._pause_s)

    async def _look_once(self) -> None:
        """Look, unless somebody did just now."""
        async with self._one_looks:
            began_s = time.monotonic()
            if began_s - self._looked_s < self._pause_s:
                return
            try:
                glance = await asyncio.to_thread(self._look)
            except (HeadwayError, OSError) as error:
                self._trouble = f"The run cannot be read: {error}"
            else:
                self._versions.take(glance.pieces)
                self._trouble, self._live = "", glance.live
            self._looked_s = time.monotonic()
            self._took_s = self._looked_s - began_s
        async with self._news:
            self._news.notify_all()

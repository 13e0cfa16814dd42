"""The web server of one run: four things can be asked for, none of them by a path on the disk."""

import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from headway.board.access import Gate
from headway.board.feed import Feed
from headway.board.glance import Glance, Watcher
from headway.core.errors import HeadwayError, UsageError
from headway.core.run import Run
from headway.forecast.expected import Expected
from headway.reports.page import asset

HOST = "127.0.0.1"
PORT = 8642
# So many are tried where nobody asked for one.
_PORTS = 20
_ASSETS = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "live.js": "text/javascript",
}


@dataclass(frozen=True, slots=True)
class Served:
    """A page that is ready to be served: where it is, and the socket that waits for readers."""

    run: Run
    expected: Expected | None
    socket: socket.socket
    token: str

    @property
    def port(self) -> int:
        """On this computer alone."""
        port: int = self.socket.getsockname()[1]
        return port

    @property
    def address(self) -> str:
        """What a browser is given: whoever has it sees the run."""
        return f"http://{HOST}:{self.port}/?token={self.token}"

    def serve(self) -> None:
        """Answer until Ctrl-C, which is passed on as KeyboardInterrupt."""
        watcher = Watcher(self.run, self.expected)
        app = app_of(watcher.look, token=self.token, cookie=f"headway-{self.port}")
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=64,
            # Streams of events have no end of their own.
            timeout_graceful_shutdown=0,
        )
        uvicorn.Server(config).run(sockets=[self.socket])


def prepared(run: Run, expected: Expected | None, *, port: int | None = None) -> Served:
    """A page of a run with a socket and a token.

    Args:
        run: The run.
        expected: What was expected of it when it began.
        port: On 127.0.0.1; the first free one from 8642 on where it is None.

    Raises:
        UsageError: The port is taken, or may not be used.
    """
    return Served(run, expected, _bound(port), secrets.token_urlsafe(24))


def _bound(port: int | None) -> socket.socket:
    wanted = range(PORT, PORT + _PORTS) if port is None else (port,)
    trouble = ""
    for number in wanted:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # A port of a server that has just ended can be used again; one in use cannot.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((HOST, number))
        except OSError as error:
            bound.close()
            trouble = error.strerror or str(error)
        else:
            # From now on whoever has the address gets an answer, if only when we are ready.
            bound.listen()
            return bound
    which = f"port {port}" if port is not None else f"ports {PORT} to {PORT + _PORTS - 1}"
    raise UsageError(f"{which} of {HOST}: {trouble}; choose another one with --port")


def app_of(look: Callable[[], Glance], *, token: str, cookie: str) -> Starlette:
    """The server's answers.

    Args:
        look: Gives the page as it is now.
        token: Whoever has it may see the page.
        cookie: The name of the cookie that the token is exchanged for.
    """
    feed = Feed(look)

    async def page(_: Request) -> Response:
        try:
            return HTMLResponse(await feed.page())
        except HeadwayError as error:
            return PlainTextResponse(f"{error}\n", status_code=500)

    async def events(request: Request) -> Response:
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")
        return StreamingResponse(feed.events(since), media_type="text/event-stream")

    def of_asset(name: str, kind: str) -> Route:
        async def answer(_: Request) -> Response:
            return Response(asset(name), media_type=kind)

        return Route(f"/{name}", answer)

    async def icon(_: Request) -> Response:
        return Response(status_code=204)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/events", events),
            Route("/favicon.ico", icon),
            *(of_asset(name, kind) for name, kind in _ASSETS.items()),
        ],
        middleware=[Middleware(Gate, token=token, cookie=cookie)],
    )

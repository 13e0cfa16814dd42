"""Who may see the page: whoever has the token, through this computer's own address.

The printed address carries a random token once; it is exchanged for a cookie that no script can
read and that no other site's page can make a browser send. A name that somebody else's server made
point to this computer (DNS rebinding) is refused by the Host header. Nothing can be changed through
the page, whoever sees it.
"""

import secrets
from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = frozenset({"127.0.0.1", "localhost"})
_TOKEN = "token"
_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
# The browser goes on to the page by itself, from here: on a redirect it would not send a strict
# cookie if a link on another site had brought it.
_WELCOME = (
    '<!doctype html><meta charset="utf-8"><title>Headway</title>'
    '<meta http-equiv="refresh" content="0; url=/"><p><a href="/">Go on to the run</a></p>'
)


class Gate:
    """Lets through to an app who may see it; gives every answer the headers that protect it."""

    def __init__(self, app: ASGIApp, *, token: str, cookie: str) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on."""
        if scope["type"] != "http":
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._answer(Request(scope))(scope, receive, protected)

    def _answer(self, request: Request) -> ASGIApp:
        if not _ours(Headers(scope=request.scope).getlist("host")):
            return _refused(
                "This page answers to 127.0.0.1 and localhost alone. From another computer: "
                "ssh -L, and then one of these."
            )
        given = parse_qs(request.url.query).get(_TOKEN)
        if given is not None and request.url.path == "/":
            return self._welcome(given)
        if not self._same(request.cookies.get(self._cookie, "")):
            return _refused(
                "This page is for whoever started it: open the address that headway serve printed, "
                "with its token."
            )
        return self._app

    def _welcome(self, given: Sequence[str]) -> ASGIApp:
        if len(given) != 1 or not self._same(given[0]):
            return _refused(
                "The token is not that of this page: each headway serve prints a new one."
            )
        answer = HTMLResponse(_WELCOME)
        answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
        return answer

    def _same(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _ours(hosts: Sequence[str]) -> bool:
    """Whether a request was made to this computer by its own name; the port may be a tunnel's."""
    if len(hosts) != 1:
        return False
    try:
        return urlsplit(f"//{hosts[0]}").hostname in HOSTS
    except ValueError:
        return False


def _refused(words: str) -> ASGIApp:
    return PlainTextResponse(words + "\n", status_code=403)

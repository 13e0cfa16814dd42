"""`headway serve`: says where the page of a run is, and answers until Ctrl-C."""

import contextlib
import socket
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.foreground import Manner
from headway.cli.looks import find
from headway.cli.objects import show
from headway.cli.terminal import Screen, give
from headway.core.errors import UsageError

if TYPE_CHECKING:
    from headway.board.server import Served


def serve(words: Sequence[str], manner: Manner, *, port: int | None, browse: bool) -> int:
    """Serve one run; Ctrl-C is its end, not a failure."""
    handle, jobs = find(words)
    if jobs:
        raise UsageError(f'serve shows a whole run, and no run is called "{words[0]}"')
    page = handle.serve(port=port)
    with contextlib.suppress(KeyboardInterrupt), page.socket:
        _announce(page, handle.name, handle.path, manner)
        if browse:
            webbrowser.open(page.address)
        page.serve()
    return 0


def _announce(page: "Served", name: str, path: Path, manner: Manner) -> None:
    if manner.json:
        # As it is: what looks like a secret is one, and whoever asked for the address needs it.
        give(show({"run": str(path), "port": page.port}, address=page.address))
        return
    give(f"{Screen.of(sys.stdout).clean(name)}: {page.address}")
    if not manner.quiet:
        give(
            "whoever has this address can see the run, from this computer; from another one "
            f"after:\n  ssh -L {page.port}:127.0.0.1:{page.port} {socket.gethostname()}\n"
            "stop: Ctrl-C (the run goes on)"
        )

"""Other people's text, made fit for a page that a browser shows.

[Note: other people's text] Names, commands, causes, notes and logs come from strangers, and a page
is opened by a browser, perhaps on another computer. So each is made harmless twice: `plain` spells
out what has power over a screen, `mask` hides what looks like a secret, and the template escapes
whatever is left. Should one slip through all the same, the page's policy lets the browser run and
load nothing but the style and the script that are known by their hashes.
"""

import html
from functools import lru_cache

from headway.core.run import Result
from headway.core.text import mask, plain, shorten
from headway.reports.happened import Tail

_MOST_TEXT = 1200
# Nothing of ours is longer; what is cut before secrets are looked for could show a part of one.
_MOST_READ = 20_000


@lru_cache(maxsize=4096)  # a long list says the same of many jobs
def clean(text: str) -> str:
    r"""One harmless line, not too long.

    >>> clean("\x1b[31mloss\x1b[0m\x00 HF_TOKEN=abc")
    'loss\\x00 HF_TOKEN=***'
    """
    return shorten(mask(plain(text[:_MOST_READ])), _MOST_TEXT)


def harmless(result: Result) -> Result:
    """The same result with every text in it fit to be shown."""
    return result.model_copy(
        update={
            "mode": clean(result.mode),
            "limited_by": clean(result.limited_by),
            "notes": tuple(map(clean, result.notes)),
            "jobs": tuple(
                job.model_copy(
                    update={
                        "name": clean(job.name),
                        "cause": clean(job.cause),
                        "notes": tuple(map(clean, job.notes)),
                    }
                )
                for job in result.jobs
            ),
            "windows": tuple(
                window.model_copy(update={"jobs": tuple(map(clean, window.jobs))})
                for window in result.windows
            ),
        }
    )


def log_text(tail: Tail) -> str:
    """A tail as text, no more than twice as long as it was when all of it is escaped."""
    text = tail.content.decode(errors="replace")
    if tail.cut:
        # Its first line is half a line, perhaps with half a secret.
        line_end = text.find("\n")
        text = text[1 + (line_end if line_end >= 0 else text.find(" ")) :]
    # Line by line, because most lines have nothing in them that would have to be looked at.
    lines = text.replace("\r\n", "\n").split("\n")
    text = mask("\n".join(plain(line, lines=True) for line in lines)).rstrip("\n")
    room = 2 * len(tail.content) + 64
    return text if len(html.escape(text)) <= room else "\u2026" + text[-(room // 6) :]

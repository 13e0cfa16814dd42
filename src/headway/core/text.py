"""Text hygiene: what other people's text may do to a screen, and what it may give away.

Names, commands and log lines come from strangers. `plain` takes the power over the terminal out of
them, `mask` what looks like a secret, `shorten` fits them into a column, and `ascii_only` spells
them for a terminal that has nothing else. Every pattern here takes time linear in its text.
"""

import re
import unicodedata

MASK = "***"

# Escape sequences of ECMA-48, with 7-bit and 8-bit introducers: CSI, then the strings (OSC, DCS,
# SOS, PM, APC) up to their terminator, then the two-byte ones. Unfinished ones are left to _UNSAFE.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x00-\x1f\x7f-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-OQ-WYZ`-~]"
)
# C0 and C1 controls, line and paragraph separators, bidi controls, everything of no width that can
# hide in a word (soft hyphen, joiners, fillers, tags), and lone surrogates.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001345f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff]"
)
_UNSAFE_BUT_LINES = re.compile(_UNSAFE.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_ASCII = str.maketrans(
    {
        "…": "...", "\u2013": "-", "—": "-", "\u2212": "-", "\xd7": "x", "µ": "u", "μ": "u",
        "±": "+-", "≤": "<=", "≥": ">=", "≈": "~", "→": "->", "←": "<-", "·": ".", "•": "*",
        "✓": "ok", "✗": "x", "“": '"', "”": '"', "\u2018": "'", "\u2019": "'", "─": "-",
        "━": "-", "│": "|", "┃": "|", "█": "#", "▏": "|", "░": ".", "▒": ":", "▓": "#",
        "\xa0": " ",
    }
)  # fmt: skip


def plain(text: str, *, lines: bool = False) -> str:
    r"""The text without power over a terminal: escape sequences go, other controls are spelt out.

    Args:
        text: Anything.
        lines: Keep line feeds and tabs, and let a lone carriage return (a progress bar) begin a
            line, as for a page of a log; else all three are spelt out and the result is one line.

    >>> plain("\x1b[31mloss\x1b[0m 0.1\x07 \u202egnp.exe")
    'loss 0.1\\x07 \\u202egnp.exe'
    >>> plain("10%\r20%\r\n", lines=True), plain("a\tb\n")
    ('10%\n20%\n', 'a\\tb\\n')
    """
    if text.isprintable() and _UNSAFE.search(text) is None:
        return text
    text = _SEQUENCE.sub("", text)
    if lines:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = (_UNSAFE_BUT_LINES if lines else _UNSAFE).sub(lambda match: _spell(match[0]), text)
    kept = "\n\t" if lines else ""
    # What Unicode has not assigned yet may be anything in the next version, a control included.
    return "".join(c if c.isprintable() or c in kept else _spell(c) for c in text)


def _spell(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cells(text: str) -> int:
    """How many columns of a terminal the text takes: wide characters two, combining marks none.

    >>> cells("loss"), cells("損失"), cells("e\u0301")
    (4, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def shorten(text: str, width: int, *, ending: str = "…") -> str:
    """The text, cut so that it takes at most `width` columns; `ending` marks a cut.

    >>> shorten("a long name", 7), shorten("損失関数", 5), shorten("short", 5)
    ('a long…', '損失…', 'short')
    """
    if cells(text) <= width:
        return text
    room = width - cells(ending)
    if room < 0:
        return ending[: max(width, 0)]
    for index, character in enumerate(text):
        room -= _cells_of(character)
        if room < 0:
            return text[:index] + ending
    return text + ending


def ascii_only(text: str) -> str:
    r"""The text in ASCII, for a terminal that has nothing else; unknown characters are spelt out.

    >>> ascii_only("3.1 µs → größer…")
    '3.1 us -> gr\\xf6\\xdfer...'
    """
    if text.isascii():
        return text
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode("ascii")


# ---- secrets ----------------------------------------------------------------------------------
# [Note: what counts as a secret]
# A command is shown in reports, so a false alarm costs a readable report and a miss costs a key.
# Password, secret, credential and key names are unmistakable: whatever they are given is masked,
# numbers too. "token" is the hard one: training commands are full of tokenizers, max_tokens and
# pad_token. It counts where it names a thing to hold (hf_token, TOKEN_GITHUB) and no word beside
# it speaks of text. Beside it a plain number stays; and
# anywhere a value that only points at the secret ($HF_TOKEN) or says yes or no.

_STRONG = re.compile(
    r"secret|passw(?:or)?d|passphrase|api_?key|credential|private_?key|access_?key|auth_?key"
)
_TOKEN = re.compile(r"token(?!i[sz]|s(?:_|$))")
_TOKENS_OF = re.compile(r"(?:access|api|auth|bearer|refresh|session)_?tokens?(?:_|$)")
# Last words that say the value is about the secret, not the secret.
_ABOUT = re.compile(
    r"(?:^|_)(?:file|filename|path|dir|folder|name|type|ratio|rate|prob|weight|count|size|len|length"
    r"|limit|timeout|ttl|expiry|version|mode|policy|dim)$"
)
_OF_TEXT = re.compile(
    r"(?:^|_)(?:max|min|num|n|per|pad|eos|bos|unk|cls|sep|mask|special|image|audio|video|speech|start"
    r"|end|stop|begin|next|target|source|input|output|context|prompt|vocab|text|class|register|visual"
    r"|patch|word|char|byte|ids?|index|idx|budget|dropout|drop|keep|level|loss|embed|embeddings?"
    r"|merge|merging|pruning|mixer|separator|delimiter|fim|fraction|style)(?:_|$)"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-.]+")


def secret_name(name: str) -> bool:
    """Whether a variable, option or header of this name is likely to hold a secret.

    >>> [secret_name(name) for name in ("HF_TOKEN", "--api-key", "dbPassword", "AWS_SECRET")]
    [True, True, True, True]
    >>> [secret_name(name) for name in ("--tokenizer", "max_tokens", "pad_token", "PWD")]
    [False, False, False, False]
    """
    words = _CAMEL.sub("_", name.strip("-")).lower()
    if _ABOUT.search(words):
        return False
    if _STRONG.search(words) or _TOKENS_OF.search(words):
        return True
    if not _TOKEN.search(words) or _OF_TEXT.search(words):
        return False
    return name.isupper() or any(part.endswith("token") for part in words.split("_"))


# Not within a path: /etc/passwd is no password.
_NAME = re.compile(r"(?<![\w./-])(-{0,2})([A-Za-z_][\w.-]*)")
_LIKELY = re.compile(r"token|secret|pass|key|credential", re.IGNORECASE)
# What may stand between a name and its value; a blank alone only after an option.
_ASSIGNS = re.compile(r"[\"']?\]?(?:=(?=[^\s=])|[ \t]+==?[ \t]+|==[ \t]*|[ \t]*:[ \t]*(?=[^\s:/]))")
_BLANK = re.compile(r"[\"']?(?:\s|\\\n)+(?!-)(?=\S)")
# One word of a shell or one quoted value. A quote inside a word belongs to it only where text
# follows: in `-H "X-Token: x" -H ...` it closes what was opened before the name. So do brackets.
_VALUE = re.compile(
    r"\\?\"[^\"]*\"?|\\?'[^']*'?"
    r"|(?:\\.|\$\{[^\s}]*\}|(?![)\]},]{1,3}(?:[\s\"';]|$))[^\s\"'&;|\\]"
    r"|\"(?=[^\s\"',;:)}\]])[^\"]*\"|'(?=[^\s\"',;:)}\]])[^']*')+",
    re.DOTALL,
)
_HARMLESS = re.compile(r"(?i:[\"']?(?:true|false|none|null|\$\w+|\$\{\w+\})[\"']?)")

_NUMBER = re.compile(r"[\d.,e+-]{1,12}")

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[opsur]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}"
    r"|sk-(?=[A-Za-z_-]{0,40}[0-9])[\w-]{16,}|xox[a-z]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}"
    r"|(?<![_-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?)"
)
_IN_URL = re.compile(r"(?<=://)([^\s/@:\"']*):[^\s/\"']+@")
_AUTHORIZATION = re.compile(
    r"(authorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|digest)\s+)?"
    r"|\bbearer\s+(?=[^\s\"']{8}))[^\s\"']+",
    re.IGNORECASE,
)
_WANDB = re.compile(r"((?:--key|\blogin)[\s=]+(?:--relogin\s+)?)[0-9a-f]{40}\b")


def mask(text: str) -> str:
    """The text with everything that looks like a secret replaced by ``***``.

    Masked are values of `secret_name`s, however assigned, passwords in addresses, authorization
    headers, and words in the shape of well known keys.

    >>> mask("HF_TOKEN=abc python train.py --api-key 'x y' --max-tokens 512")
    'HF_TOKEN=*** python train.py --api-key *** --max-tokens 512'
    >>> mask("git clone https://me:hunter2@host/repo")
    'git clone https://me:***@host/repo'
    """
    if "://" in text:
        text = _IN_URL.sub(rf"\1:{MASK}@", text)
    text = _SHAPES.sub(MASK, text)
    text = _AUTHORIZATION.sub(rf"\1{MASK}", text)
    text = _WANDB.sub(rf"\1{MASK}", text)
    return _mask_assigned(text) if _LIKELY.search(text) else text


def _mask_assigned(text: str) -> str:
    kept: list[str] = []
    done = position = 0
    while name := _NAME.search(text, position):
        position = name.end()
        if not _LIKELY.search(name[2]) or not secret_name(name[2]):
            continue
        gap = _ASSIGNS.match(text, position) or (_BLANK.match(text, position) if name[1] else None)
        value = _VALUE.match(text, gap.end()) if gap else None
        if value is None or _harmless(name[2], value[0]):
            continue
        kept += (text[done : value.start()], MASK)
        done = position = value.end()
    return "".join(kept) + text[done:]


def _harmless(name: str, value: str) -> bool:
    if _HARMLESS.fullmatch(value):
        return True
    return _NUMBER.fullmatch(value) is not None and not _STRONG.search(name.lower())

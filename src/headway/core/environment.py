"""The caller's environment as names and digests: enough to say what differs, never the values."""

import hashlib
import re
from collections.abc import Mapping

from headway.core.noun import Noun

# Differ between any two terminals and say nothing about a training.
_VOLATILE = re.compile(
    r"_|PWD|OLDPWD|SHLVL|TERM.*|COLUMNS|LINES|WINDOWID|SSH_.*|DISPLAY|XDG_SESSION_.*|TMUX.*|STY"
    r"|COLORTERM|VTE_VERSION|DBUS_.*|LS_COLORS|HISTFILE|HEADWAY_.*|NO_COLOR|GPG_TTY|INVOCATION_ID"
)

# Read by libgomp and libiomp (torch), OpenBLAS and MKL (numpy), and numexpr.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


class Environment(Noun):
    """Names of the variables with a salted digest of each value.

    Digests have 16 bits: a change is seen with probability 0.99998, and a value cannot be told
    from its digest by trying.
    """

    salt: str
    digests: dict[str, str]

    @classmethod
    def of(cls, variables: Mapping[str, str], *, salt: str) -> "Environment":
        """The fingerprint of these variables; `salt` is random, one a run."""
        kept = {name: value for name, value in variables.items() if not _VOLATILE.fullmatch(name)}
        return cls(salt=salt, digests={n: _digest(salt, n, v) for n, v in sorted(kept.items())})

    def differences(self, variables: Mapping[str, str]) -> tuple[str, ...]:
        """What differs in these variables, in words such as ``PATH changed``.

        >>> then = Environment.of({"A": "1", "B": "2"}, salt="s")
        >>> then.differences({"A": "1", "B": "3", "C": "4"})
        ('B changed', 'C added')
        """
        now = Environment.of(variables, salt=self.salt).digests
        words = []
        for name in sorted(self.digests.keys() | now.keys()):
            if name not in now:
                words.append(f"{name} removed")
            elif name not in self.digests:
                words.append(f"{name} added")
            elif now[name] != self.digests[name]:
                words.append(f"{name} changed")
        return tuple(words)


def _digest(salt: str, name: str, value: str) -> str:
    text = f"{salt}\0{name}\0{value}".encode(errors="surrogateescape")
    return hashlib.blake2b(text, digest_size=2).hexdigest()

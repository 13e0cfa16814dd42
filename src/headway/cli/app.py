"""What can be typed. Nothing of Headway is imported here until a verb runs: help stays fast."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headway.cli.foreground import Manner

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(slots=True)
class Typed:
    """What was typed beside a verb's own words.

    `command` is everything after the dashes of `run -- CMD`, which is never looked at for options
    of ours; None where there are none.
    """

    verbose: bool = False
    quiet: bool = False
    json: bool = False
    command: list[str] | None = field(default=None)

    @classmethod
    def split(cls, words: list[str]) -> tuple["Typed", list[str]]:
        """The words without the command, and the rest of what was typed.

        >>> Typed.split(["run", "-q", "--", "ls", "-v"])
        (Typed(verbose=False, quiet=False, json=False, command=['ls', '-v']), ['run', '-q'])
        """
        verb = next((word for word in words if not word.startswith("-")), "")
        if verb == "run" and "--" in words:
            at = words.index("--")
            return cls(command=words[at + 1 :]), words[:at]
        return cls(), words


def help_of(words: list[str]) -> tuple[Callable[..., object], str, list[str]] | None:
    """Where the words ask for a verb's help: its command, its full name, and `--help`.

    Typer would first convert the options of `headway` itself, for which it loads pydantic: half of
    the time that help takes.
    """
    own = words[: words.index("--")] if "--" in words else words
    verb = next((word for word in own if not word.startswith("-")), "")
    if not {"-h", "--help"} & set(own) or not verb:
        return None
    command = getattr(typer.main.get_command(app), "commands", {}).get(verb)
    return (command, f"headway {verb}", ["--help"]) if command is not None else None


# What a shell is offered; loaded only when one asks.


def _offer_runs(incomplete: str) -> list[str]:
    from headway.cli import completion

    return completion.runs(incomplete)


def _offer_runs_and_jobs(context: typer.Context, incomplete: str) -> list[str]:
    from headway.cli import completion

    return completion.runs_and_jobs(context, incomplete)


def _offer_modes(incomplete: str) -> list[str]:
    from headway.cli import completion

    return completion.modes(incomplete)


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="More: tracebacks of bugs.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Less.")]
AllowMig = Annotated[
    bool,
    typer.Option(
        "--allow-mig-reconfigure", help="GPUs may be divided by MIG for the run, and back after it."
    ),
]
# Described in each verb's own words: typer's list of arguments would name Python types.
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="RUN|JOB", hidden=True, autocompletion=_offer_runs_and_jobs),
]
Runs = Annotated[
    list[str] | None, typer.Argument(metavar="RUN", hidden=True, autocompletion=_offer_runs)
]
_WHICH = (
    "A first word that names a run (its folder or its name) is the run; else all words are jobs of "
    "the newest run started from this folder.\n\n"
)


def _manner(
    context: typer.Context, json: bool, verbose: bool, quiet: bool, *, progress: bool = True
) -> "Manner":
    """How much to show; also checks that Headway works here at all."""
    typed: Typed = context.obj
    typed.verbose |= verbose
    from headway.cli.foreground import Manner
    from headway.core.errors import UsageError

    if not sys.platform.startswith("linux"):
        raise UsageError(
            f"Headway runs on Linux (also inside WSL2); this is {sys.platform}, where it cannot "
            "divide cores and memory among jobs."
        )
    return Manner(json=json or typed.json, quiet=quiet or typed.quiet, progress=progress)


def _version(wanted: bool) -> None:
    if wanted:
        from headway import __version__

        print(f"headway {__version__}")
        raise typer.Exit


@app.callback(
    epilog=_examples(
        "headway                              the machine, the last runs, what next",
        "headway run jobs.txt                 a list of commands, side by side",
        "headway run -- python train.py       one command, with its steps and memory",
        "headway status                       how the newest run stands",
    )
)
def root(
    context: typer.Context,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and exit.")
    ] = False,
) -> int:
    """Run lists of training commands side by side on one machine, and lose nothing."""
    typed: Typed = context.obj
    typed.verbose, typed.quiet, typed.json = verbose, quiet, json
    if context.invoked_subcommand is not None:
        return 0
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import looks

    return looks.bare(manner)


@app.command(epilog=_examples("headway detect", "headway detect --json"))
def detect(
    context: typer.Context, json: Json = False, verbose: Verbose = False, quiet: Quiet = False
) -> int:
    """Show what this machine has, who uses it, how to share it."""
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import looks

    return looks.detect(manner)


@app.command(
    epilog=_examples(
        "headway plan jobs.txt",
        "headway plan jobs.txt --out tonight.json",
        "headway plan jobs.csv --on a100-40gb",
    )
    + "\n\nExit codes: 0 a plan was written, 2 bad usage or file, 3 no job can run.",
)
def plan(
    context: typer.Context,
    jobs: Annotated[str, typer.Argument(metavar="JOBS", show_default=False)],
    on: Annotated[
        str | None,
        typer.Option(
            metavar="MACHINE",
            help="Plan for a machine that is not here: a known device, or a machine.json.",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where the plan goes; default plan.json.")
    ] = None,
    keep_threads: Annotated[
        bool, typer.Option("--keep-threads", help="Leave thread counts as they are.")
    ] = False,
    allow_mig: AllowMig = False,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Show how a list would be run, and why; start nothing.

    JOBS is a job file. The plan is written to a file that can be edited and given to run --plan.
    """
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import plans

    return plans.plan(jobs, on, out, keep_threads, manner, allow_mig=allow_mig)


@app.command(
    epilog=_examples(
        "headway run jobs.txt",
        "headway run jobs.txt --mode shared --out sweep-1",
        "headway run jobs.txt --filter 'lstm-*' --filter '!*-big'",
        "headway run --resume sweep-1",
        "seq 8 | sed 's/^/python train.py --seed /' | headway run -",
        "headway run --timeout 10m -- python train.py --lr 0.1",
    )
    + "\n\nExit codes: 0 every job ran and succeeded, 1 some did not, 2 bad usage or file, "
    "3 nothing could be placed, 130 interrupted and resumable.",
)
def run(
    context: typer.Context,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOBS|-- CMD", hidden=True),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="MODE",
            autocompletion=_offer_modes,
            help="auto (default): chosen by predicted makespan; serial: one after another; naive: "
            "all at once; shared: some at once, threads divided; partitioned: cores and memory "
            "divided as well.",
        ),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Carry out this plan (see headway plan)."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="The run folder; default headway-runs/<time>-<file>-<4 hex>."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="RUN", autocompletion=_offer_runs, help="Go on with an interrupted run."
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; the run goes on by itself.")
    ] = False,
    keep_threads: Annotated[
        bool, typer.Option("--keep-threads", help="Leave thread counts as they are.")
    ] = False,
    filter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Only jobs whose name matches ('lstm-*'), or does not ('!big*'); repeatable.",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="With -- CMD: end it after this time (90, 10m, 1h30m)."),
    ] = None,
    allow_mig: AllowMig = False,
    no_progress: Annotated[
        bool, typer.Option("--no-progress", help="Show the first and the last lines alone.")
    ] = False,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Run a list of commands, or one (-- CMD).

    JOBS is a job file; - reads it from stdin. After two dashes follows one command, which runs in
    the foreground with your streams and signals.
    """
    manner = _manner(context, json, verbose, quiet, progress=not no_progress)
    from headway.cli import starts

    asked = starts.Asked(
        jobs=tuple(jobs or ()),
        command=context.obj.command,
        mode=mode,
        out=out,
        resume=resume,
        detach=detach,
        keep_threads=keep_threads,
        plan=plan,
        filter=tuple(filter or ()),
        timeout=timeout,
        allow_mig=allow_mig,
    )
    return starts.run(asked, manner)


@app.command(epilog=_WHICH + _examples("headway status", "headway status sweep-1 lstm cnn --json"))
def status(
    context: typer.Context,
    words: Words = None,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Show how a run stands."""
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import looks

    return looks.status(words or (), manner)


@app.command(
    epilog=_WHICH + _examples("headway logs lstm", "headway logs -f sweep-1 lstm --stderr")
)
def logs(
    context: typer.Context,
    words: Words = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on until the jobs have ended.")
    ] = False,
    stdout: Annotated[bool, typer.Option("--stdout", help="Only this stream.")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="Only this stream.")] = False,
    attempt: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Of this attempt, not the last.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="As it was written, with its control characters.")
    ] = False,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Print what jobs wrote."""
    _manner(context, json, verbose, quiet)
    from headway.cli import logs as output
    from headway.cli.looks import find
    from headway.core.errors import UsageError

    if follow and json:
        raise UsageError("-f prints text as it comes; --json prints one object: choose one")
    handle, names = find(words or ())
    names = names or [job.name for job in handle.folder.jobs.jobs]
    chosen = tuple(s for s, on in (("stdout", stdout), ("stderr", stderr)) if on)
    wanted = output.Wanted(streams=chosen or ("stdout", "stderr"), attempt=attempt, raw=raw)
    if follow:
        return output.follow_logs(handle, names, wanted)
    return output.show_logs(handle, names, wanted, json=json or context.obj.json)


@app.command(
    epilog=_examples(
        "headway serve                         the newest run started from this folder",
        "headway serve sweep-1 --port 9000 --open",
    )
)
def serve(
    context: typer.Context,
    words: Runs = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=65535, help="On 127.0.0.1; default 8642, or the next free one."
        ),
    ] = None,
    open: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Show a run in the browser, live; for this computer alone, read only."""
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import serving

    return serving.serve(words or (), manner, port=port, browse=open)


@app.command(epilog=_WHICH + _examples("headway wait", "headway wait sweep-1 --timeout 2h"))
def wait(
    context: typer.Context,
    words: Words = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Give up after this time, with exit code 1.")
    ] = None,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Wait until it has ended; exits as the run does."""
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import looks
    from headway.cli.starts import seconds_of

    return looks.wait(words or (), manner, seconds_of(timeout))


@app.command(epilog=_WHICH + _examples("headway cancel lstm", "headway cancel sweep-1 --yes"))
def cancel(
    context: typer.Context,
    words: Words = None,
    yes: Annotated[bool, typer.Option("--yes", help="Cancel a whole run without asking.")] = False,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """End jobs for good, with everything they have started."""
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import looks

    return looks.cancel(words or (), manner, sure=yes)


@app.command(epilog=_WHICH + _examples("headway retry", "headway retry sweep-1 --lost"))
def retry(
    context: typer.Context,
    words: Words = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Jobs that ended failed, oom, timeout or stalled.")
    ] = False,
    lost: Annotated[
        bool, typer.Option("--lost", help="Jobs of which nobody knows how they ended.")
    ] = False,
    no_progress: Annotated[
        bool, typer.Option("--no-progress", help="Show the first and the last lines alone.")
    ] = False,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Run ended jobs again; exits as run does.

    Without jobs or an option: all that failed, were lost or cancelled. What has not ended goes on.
    """
    manner = _manner(context, json, verbose, quiet, progress=not no_progress)
    from headway.cli import looks

    return looks.retry(words or (), manner, failed=failed, lost=lost)


@app.command(
    epilog=_examples(
        "headway clean                         what would go, and how large it is",
        "headway clean --older-than 7d --yes",
        "headway clean --keep 5",
        "headway clean sweep-1 --unfinished --yes",
    )
)
def clean(
    context: typer.Context,
    runs: Runs = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs whose last change is so long ago (7d, 12h)."),
    ] = None,
    keep: Annotated[int, typer.Option(metavar="N", min=0, help="The newest so many stay.")] = 0,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Runs that could be resumed go too.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; else they are listed.")] = False,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Remove folders of ended runs; only list them without --yes.

    RUN is a run's folder or name; without any, all of yours count, wherever they lie. Runs that
    still go on always stay.
    """
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import cleaning
    from headway.cli.starts import seconds_of

    older_than_s = seconds_of(older_than, option="--older-than")
    asked = cleaning.Asked(tuple(runs or ()), older_than_s, keep, unfinished, yes)
    return cleaning.clean(asked, manner)


@app.command(epilog=_WHICH + _examples("headway explain", "headway explain sweep-1 lstm"))
def explain(
    context: typer.Context,
    words: Words = None,
    json: Json = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> int:
    """Print the whole report, or all about some jobs."""
    manner = _manner(context, json, verbose, quiet)
    from headway.cli import looks

    return looks.explain(words or (), manner)

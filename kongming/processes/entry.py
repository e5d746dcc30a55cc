"""Entry and exit of a program of ours: signals, exit statuses, a sentence for each error."""

from __future__ import annotations

import codecs
import importlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

from kongming import usage_errors
from kongming.printable import printable
from kongming.processes import standard_streams
from kongming.records.errors import KongmingError, MissingExtraError


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: cleans up just as Ctrl-C does, but ends with another status."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"signal {signum}")
        self.signum = signum


def terminate(signum: int, frame: FrameType | None) -> None:
    """A handler of signals, so that ``finally`` reaps children; raises Terminated."""
    raise Terminated(signum)


def run(
    command: click.Command,
    name: str,
    arguments: Sequence[str],
    *,
    failures: tuple[type[Exception], ...] = (),
    extra: str = "",
) -> int:
    """Run ``NAME ARGUMENTS`` and return its exit status; errors are printed, not raised.

    A command returns nothing, or its exit status. ``failures`` are foreseen as well, with status 1.
    ``extra`` is the one of our package that brings what the command imports.
    What was not foreseen is printed without its traceback, but for KONGMING_DEBUG=1.
    """
    try:
        with command.make_context(name, list(arguments)) as context:
            result: Any = command.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            path = name if error.ctx is None else error.ctx.command_path
            message, meant = usage_errors.in_words(error)
            _say(message, f"{meant}See '{path} --help'.")
        else:
            _say(error.format_message(), None)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as ended:
        return interrupted_status(ended)
    except KongmingError as error:
        _say(error.message, error.hint)
        return error.exit_status
    except failures as error:
        _say(_in_words(error), None)
        return 1
    except Exception as error:
        missing = _missing(error, name, extra)
        if missing is not None:
            _say(missing.message, missing.hint)
            return missing.exit_status
        print_traceback(error)
        signalled = interruption(error)
        if signalled is not None:
            return interrupted_status(signalled)
        _say(*unforeseen(error, name))
        return 1
    return result if type(result) is int else 0


def interrupted_status(ended: BaseException) -> int:
    """Return the exit status of a command that a signal ended."""
    return 128 + (ended.signum if isinstance(ended, Terminated) else signal.SIGINT)


def interruption(error: Exception) -> KeyboardInterrupt | None:
    """Return the signal that was being handled when an error was raised that nobody foresaw: a
    library that is interrupted anywhere may fail to clean up after itself, as SQLAlchemy does
    between two of its statements. None for what says by itself what is wrong, as a full disk."""
    if isinstance(error, KongmingError | click.ClickException | OSError):
        return None
    context = error.__context__
    while context is not None and not isinstance(context, KeyboardInterrupt):
        context = context.__context__
    return context


def print_traceback(error: BaseException) -> None:
    """Print the traceback of an error on stderr, for KONGMING_DEBUG=1."""
    if os.environ.get("KONGMING_DEBUG", "0") not in ("", "0"):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)


def _in_words(error: Exception) -> str:
    """The message, of one of the system without its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.strerror}{'' if error.filename is None else f': {error.filename}'}."


def start(name: str, module: str, extra: str) -> None:
    """Call ``main`` of ``module``, for the console script of a program that imports at its start
    what only ``extra`` of our package brings; ends with a sentence where that is not installed,
    and without a traceback where it is interrupted meanwhile."""
    standard_streams.prepare()
    try:
        main = importlib.import_module(module).main
    except KeyboardInterrupt:
        sys.exit(130)
    except ModuleNotFoundError as error:
        missing = _missing(error, name, extra)
        if missing is None:
            raise
        _say(missing.message, missing.hint)
        sys.exit(missing.exit_status)
    main()


def _missing(error: Exception, name: str, extra: str) -> MissingExtraError | None:
    """The error for a module of somebody else that is not installed; else None."""
    module = (getattr(error, "name", None) or "").partition(".")[0]
    ours = module.startswith("kongming")
    if not (isinstance(error, ModuleNotFoundError) and extra and module) or ours:
        return None
    return MissingExtraError(name, extra, module)


def unforeseen(error: Exception, name: str) -> tuple[str, str]:
    """Return what is said, and the way out, of an error that ``name`` did not foresee."""
    text = str(error).strip()
    kind = type(error).__name__
    return (
        f"Something went wrong that {name} did not foresee ({kind}{': ' if text else ''}{text}).",
        "Set KONGMING_DEBUG=1 to see the traceback, and please report it.",
    )


def _say(message: str, hint: str | None) -> None:
    """Print on stderr the message, and the way out on a line of its own."""
    click.echo(printable(f"error: {message}", lines=True), err=True)
    if hint:
        click.echo(printable(f"hint: {hint}", lines=True), err=True)


_PLAIN = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
    # Eight heights of a bar, from the lowest.
    **dict(zip("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588", "_.-:=+*#", strict=True)),
    "\u2501": "#",
    "\u2026": "...",
    "\u00d7": "x",
    "\u00b7": "-",
    "\u00b5": "u",
    "\u03bc": "u",
}
"""What is printed where a terminal has no such character; ``?`` for all others."""


def print_plainly(*streams: Any) -> None:
    """Make text streams print a near character for one that their encoding lacks.

    Without it a name or a bar in latin-1 or ASCII ends the command in the middle of its answer.
    """

    def near(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        text = "".join(_PLAIN.get(each, "?") for each in error.object[error.start : error.end])
        return text, error.end

    codecs.register_error("kongming.near", near)
    for stream in streams:
        # Also in UTF-8: a file name may hold bytes that are no text.
        # The C locale has "surrogateescape", which lets such bytes pass, and no other character.
        plain = ("strict", "surrogateescape")
        if isinstance(stream, io.TextIOWrapper) and stream.errors in plain:
            stream.reconfigure(errors="kongming.near")


def json_text(document: Any) -> str:
    """A JSON document as every program of ours prints it.

    Raises:
        ValueError: it holds NaN or an infinity, which JSON has no word for.
    """
    return json.dumps(document, indent=2, allow_nan=False)

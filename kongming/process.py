"""How a program of ours is entered and left: signals, exit statuses, a sentence for each error."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import click

from kongming.printable import printable
from kongming.records.errors import KongmingError


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
    tell: Callable[[Exception], None],
    failures: tuple[type[Exception], ...] = (),
) -> int:
    """Run ``NAME ARGUMENTS`` and return its exit status; errors are told, not raised.

    A command returns nothing, or its exit status. ``failures`` are told as well, with status 1.
    """
    try:
        with command.make_context(name, list(arguments)) as context:
            result: Any = command.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Terminated as ended:
        return 128 + ended.signum
    except (KeyboardInterrupt, click.Abort):
        return 130
    except KongmingError as error:
        tell(error)
        return error.exit_status
    except failures as error:
        tell(error)
        return 1
    return result if type(result) is int else 0


_PLAIN = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
    **dict.fromkeys("\u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588\u2501", "#"),
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
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="kongming.near")


def json_text(document: Any) -> str:
    """A JSON document as every program of ours prints it.

    Raises:
        ValueError: it holds NaN or an infinity, which JSON has no word for.
    """
    return json.dumps(document, indent=2, allow_nan=False)


def tell_with_hint(error: Exception) -> None:
    """On stderr: what is wrong, and the way out on a line of its own."""
    click.echo(printable(f"error: {getattr(error, 'message', error)}", lines=True), err=True)
    if hint := getattr(error, "hint", None):
        click.echo(printable(f"hint: {hint}", lines=True), err=True)

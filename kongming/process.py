"""How a program of ours is entered and left: signals, exit statuses, a sentence for each error."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import click

from kongming.records.errors import KongmingError

__all__ = ["Terminated", "json_text", "run", "tell_with_hint", "terminate"]


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


def json_text(document: Any) -> str:
    """A JSON document as every program of ours prints it.

    Raises:
        ValueError: it holds NaN or an infinity, which JSON has no word for.
    """
    return json.dumps(document, indent=2, allow_nan=False)


def tell_with_hint(error: Exception) -> None:
    """On stderr: what is wrong, and the way out on a line of its own."""
    click.echo(f"error: {getattr(error, 'message', error)}", err=True)
    if hint := getattr(error, "hint", None):
        click.echo(f"hint: {hint}", err=True)

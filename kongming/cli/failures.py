"""Output for an error: a sentence and a way out on stderr, one JSON document under --json."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterable, Sequence

import click

from kongming import usage_errors
from kongming.cli.extras import missing_extra
from kongming.printable import printable
from kongming.processes.entry import print_traceback, unforeseen
from kongming.records.errors import InputError, KongmingError, UnknownNameError

_document = {"written": False}


def note_document() -> None:
    """Stdout has its one JSON document: an error that comes later goes to stderr alone."""
    _document["written"] = True


def forget_document() -> None:
    """A new command begins."""
    _document["written"] = False


def wants_json(args: Sequence[str]) -> bool:
    """Return whether --json was given: asked of the bare arguments, since a wrong usage parses
    none."""
    options = list(args)
    return "--json" in (options[: options.index("--")] if "--" in options else options)


_PROGRAMS = {
    "agent": "kongming-agent",
    "server": "kongming-server",
    "token": "kongming-server token",
    "slurm": "kongming-slurm",
    "extender": "kongming-extender",
}
"""Words that are no command of ``kongming``, and the program that each belongs to."""


def unknown_command(name: str, known: Iterable[str]) -> KongmingError:
    if name in _PROGRAMS:
        return InputError(
            f"There is no command named {name!r}.",
            hint=f"That is a program of its own: {_PROGRAMS[name]} --help",
        )
    context = click.get_current_context(silent=True)
    path = "kongming" if context is None else context.command_path
    return UnknownNameError("command", name, known, hint=f"See '{path} --help'.")


def report(error: Exception, root: click.Group, args: Sequence[str], as_json: bool) -> int:
    """Tell of ``error`` in ``root`` with ``args`` and return the exit status that it means."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return 2
    if isinstance(error, ModuleNotFoundError):
        error = missing_extra(f"kongming {_command_of(args)}".strip(), error) or error
    message, hint, status = _described(error, root, args)
    print_traceback(error)
    _say(message, hint, type(error).__name__, as_json)
    return status


def report_interrupt(as_json: bool) -> None:
    """Ctrl-C or a signal: what was measured is kept, the question has no answer."""
    _say("Interrupted.", None, "KeyboardInterrupt", as_json)


def _command_of(args: Sequence[str]) -> str:
    return next((arg for arg in args if not arg.startswith("-")), "")


def _path_of(root: click.Group, args: Sequence[str]) -> str:
    """Return the command that the arguments name, where click does not say which it was."""
    context = click.Context(root, info_name="kongming")
    command: click.Command | None = root
    names = ["kongming"]
    for arg in args:
        if not isinstance(command, click.Group) or arg.startswith("-"):
            break
        command = command.get_command(context, arg)
        if command is not None:
            names.append(arg)
    return " ".join(names)


_WRONG_PATH = (
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
)


def _described(
    error: Exception, root: click.Group, args: Sequence[str]
) -> tuple[str, str | None, int]:
    """Message, hint and exit status."""
    if isinstance(error, KongmingError):
        return error.message, error.hint, error.exit_status
    if isinstance(error, click.UsageError):
        path = _path_of(root, args) if error.ctx is None else error.ctx.command_path
        message, meant = usage_errors.in_words(error)
        return message, f"{meant}See '{path} --help'.", 2
    if isinstance(error, click.ClickException):
        return error.format_message(), None, error.exit_code
    if isinstance(error, OSError) and error.errno in _WRONG_PATH and str(error.filename) in args:
        hint = "Name a file in a folder that exists, and that you may use."
        return f"{error.filename} cannot be used: {error.strerror}.", hint, 2
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f": {error.filename}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        return f"{error.strerror}{where}.", "Free some space, and try again." if full else None, 1
    return *unforeseen(error, "kongming"), 1


def _say(message: str, hint: str | None, kind: str, as_json: bool) -> None:
    # What was printed before comes first where both go to one terminal.
    try:
        sys.stdout.flush()
        text = f"error: {message}" + (f"\nhint: {hint}" if hint else "")
        # A server, a file or a name in it may have brought any of it.
        click.echo(printable(text, lines=True), err=True)
        if as_json and not _document["written"]:
            note_document()
            document = {"error": {"message": message, "hint": hint, "kind": kind}}
            click.echo(json.dumps(document, indent=2))
    except BrokenPipeError:
        # Nobody reads: the exit status still tells.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)

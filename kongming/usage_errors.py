"""Errors of options and arguments, as click finds them, in the words of all our programs."""

from __future__ import annotations

import re

import click

from kongming.quantities import has_thousands, meant_with_point
from kongming.records.errors import UnknownNameError, nearest_names

__all__ = ["in_words"]


def in_words(error: click.UsageError) -> tuple[str, str]:
    """Return the message, and what was meant perhaps: a sentence with a space after it, or ""."""
    unknown = _unknown_command(error)
    if unknown is not None:
        return unknown.message, f"{unknown.hint} " if unknown.hint else ""
    return _plain(_with_near_names(error).format_message()), _meant(error)


def _unknown_command(error: click.UsageError) -> UnknownNameError | None:
    match = re.fullmatch(r"No such command '(.*)'\.", error.message)
    if match is None or error.ctx is None or not isinstance(error.ctx.command, click.Group):
        return None
    return UnknownNameError("command", match[1], error.ctx.command.list_commands(error.ctx))


def _with_near_names(error: click.UsageError) -> click.UsageError:
    """Return the error with those suggestions alone that may be meant, and choices in one line.

    click suggests '--version' for '--json', and for a command nothing."""
    if isinstance(error, click.NoSuchOption):
        # By the words alone: the dashes make all of them alike.
        plain = {name.lstrip("-"): name for name in error.possibilities or ()}
        near = nearest_names(error.option_name.lstrip("-"), plain)
        return click.NoSuchOption(
            error.option_name, possibilities=[plain[name] for name in near], ctx=error.ctx
        )
    if isinstance(error, click.MissingParameter) and error.param is not None:
        kind = error.param.type
        if isinstance(kind, click.Choice):
            name = error.param.get_error_hint(error.ctx) if error.ctx else error.param.name
            allowed = ", ".join(map(str, kind.choices))
            return click.UsageError(f"Missing option {name}. Allowed: {allowed}.", ctx=error.ctx)
    return error


def _meant(error: click.UsageError) -> str:
    """Return what was meant perhaps, as a sentence with a space after it; empty where no guess is
    near."""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        group = error.ctx.command
        # Some groups are commands as well, with options of their own.
        if isinstance(group, click.Group) and not group.invoke_without_command:
            return f"Options stand after the command: {error.ctx.command_path} COMMAND --OPTION. "
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    message = getattr(error, "message", "")
    number = re.search(r"^'(.*?)' is not a valid (float|integer)", message)
    if number is not None and (number[2] == "float" or has_thousands(number[1])):
        return f"{meant} " if (meant := meant_with_point(number[1])) else ""
    match = re.search(r"^'(.*?)' is not one of", message)
    if match is None or not isinstance(kind, click.Choice):
        return ""
    near = UnknownNameError("choice", match[1], map(str, kind.choices)).suggestions[:2]
    return f"Did you mean {' or '.join(near)}? " if near else ""


def _plain(message: str) -> str:
    """Name a number by what it is, a range in words, and near names as everywhere else."""
    for kind, number in (("float", "number (as 1.2)"), ("integer", "whole number")):
        message = re.sub(rf"is not a valid {kind}(?: range)?\.", f"is not a {number}.", message)
    message = re.sub(
        r"is not in the range (?:(\S+?)(<=?))?x(?:([<>]=?)(\S+?))?\.$",
        lambda match: f"is out of range. Allowed: {_range_in_words(*match.groups())}.",
        message,
    )
    return re.sub(
        r"\(Did you mean one of: (.*?)\?\)$",
        lambda match: f"Did you mean {' or '.join(match[1].split(', '))}?",
        message,
    )


def _range_in_words(
    low: str | None, low_sign: str | None, sign: str | None, bound: str | None
) -> str:
    """Describe the range of click that reads ``low<=x<=bound``, ``x>=bound`` or ``x<=bound``."""
    high, high_sign = bound, sign
    if sign is not None and sign.startswith(">"):
        (low, low_sign), (high, high_sign) = (bound, sign), (None, None)
    at_least = low_sign is not None and low_sign.endswith("=")
    at_most = high_sign is not None and high_sign.endswith("=")
    least, most = (None if text is None else f"{float(text):.15g}" for text in (low, high))
    if most is None:
        return f"{least} or more" if at_least else f"above {least}"
    upper = f"up to {most}" if at_most else f"below {most}"
    if least is None:
        return upper
    if at_least and at_most:
        return f"{least} to {most}"
    return f"{least} or more, {upper}" if at_least else f"above {least}, {upper}"

"""Commands in pages and units, and whether the real programs know their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
from kongming_agent.agent_command import cli as agent
from kongming_extender.extender_command import cli as extender
from kongming_server.commands.server_command import cli as server
from kongming_slurm.commands import cli as slurm

from kongming.cli.main import cli

PROGRAMS: dict[str, click.Command] = {
    "kongming": cli,
    "kongming-agent": agent,
    "kongming-extender": extender,
    "kongming-server": server,
    "kongming-slurm": slurm,
}


def in_page(path: Path) -> list[list[str]]:
    """The words of each command of ours within the fenced blocks of a page.

    In a transcript, which begins with a prompt, other lines are what commands printed.
    """
    invocations = []
    for block in re.findall(r"^```\w*\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        prompt = "$ " if block.startswith("$ ") else ""
        for line in block.replace("\\\n", " ").splitlines():
            if not line.startswith(prompt):
                continue
            words = shlex.split(line.removeprefix("$ "), comments=True)
            words = [word for word in words if word != "&"]
            if words and words[0] in PROGRAMS:
                invocations.append(words)
    return invocations


def unknown(words: list[str]) -> list[str]:
    """What of a command no program knows: options, and commands of a group."""
    name, *rest = words
    command = PROGRAMS[name]
    context = click.Context(command, info_name=name)
    options = _options(command, context)
    wrong = []
    takes_value = False
    for word in rest:
        if takes_value:
            takes_value = False
            continue
        if word.startswith("-"):
            option, equals, _ = word.partition("=")
            if option not in options:
                wrong.append(f"{context.command_path} {option}")
            else:
                takes_value = not equals and not options[option].is_flag
        elif isinstance(command, click.Group):
            subcommand = command.get_command(context, word)
            if subcommand is None:
                return [*wrong, f"{context.command_path} {word}"]
            context = click.Context(subcommand, info_name=word, parent=context)
            command, options = subcommand, _options(subcommand, context)
    return wrong


def _options(command: click.Command, context: click.Context) -> dict[str, click.Option]:
    return {
        name: parameter
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }

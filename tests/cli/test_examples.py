"""The help of each command ends with examples, and each of them is a valid command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from kongming_agent.agent_command import cli as agent
from kongming_extender.extender_command import cli as extender
from kongming_server.commands.server_command import cli as server
from kongming_slurm.commands import cli as slurm

from kongming.cli.examples import examples
from kongming.cli.main import cli
from kongming.cli.measure.observe_export import export

FILE_NAME = re.compile(r"[\w/-]+\.(csv|json|parquet|toml)")


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """Each command of ``group`` and of its groups, with its full name."""
    context = click.Context(group)
    for part in group.list_commands(context):
        command = group.get_command(context, part)
        assert command is not None
        yield f"{name} {part}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {part}")


PROGRAMS: dict[str, click.Command] = {
    "kongming": cli,
    "kongming-agent": agent,
    "kongming-extender": extender,
    "kongming-server": server,
    "kongming-slurm": slurm,
}
COMMANDS = {
    name: command
    for program, top in PROGRAMS.items()
    if isinstance(top, click.Group)
    for name, command in commands(top, program)
}
COMMANDS |= {name: command for name, command in PROGRAMS.items() if name != "kongming"}
COMMANDS["kongming observe export"] = export
EXAMPLES = {name: re.findall("^  (.+)", c.epilog or "", re.M) for name, c in COMMANDS.items()}


def parse(words: list[str]) -> None:
    """Parse a command line as the program does, without running the command.

    Raises:
        click.UsageError: the program would refuse the command line.
    """
    program, *rest = words
    command = PROGRAMS[program]
    context = click.Context(command, info_name=program)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, subcommand, rest = command.resolve_command(context, rest)
        assert subcommand is not None
        command, context = subcommand, click.Context(subcommand, context, name)
    command.make_context(context.info_name, rest, parent=context.parent)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_ends_with_one_or_two_examples(name: str) -> None:
    lines = EXAMPLES[name]
    assert len(lines) in (1, 2)
    command = COMMANDS[name]
    printed = command.get_help(click.Context(command, info_name=name)).splitlines()
    assert [line.strip() for line in printed[-len(lines) :]] == lines


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_the_program_accepts_each_example(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words, _, _ = line.partition(" >")
    for match in FILE_NAME.finditer(words):
        (tmp_path / match[0]).touch()
    parse(shlex.split(words))


@pytest.mark.parametrize(
    "line",
    [
        "kongming induce",
        "kongming runs --limt 3",
        "kongming scale curve",
        "kongming assignments reserve job-1",
        "kongming observe export a.parquet",
    ],
)
def test_a_wrong_example_is_refused(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(shlex.split(line))


def test_examples_are_one_to_a_line() -> None:
    command = click.Command("x", epilog=examples("x " + "long " * 30, "x short"))
    *_, first, second = command.get_help(click.Context(command)).splitlines()
    assert first.split() == ["x", *["long"] * 30]
    assert second.strip() == "x short"

"""The applications files of the examples: every program that they name is there."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kongming.profiling.appfile import load
from kongming.profiling.plans.identity import identity
from kongming.records.application import Application, Command

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = ("apps.toml", "holdout.toml")


def words(command: Command | None) -> list[str]:
    if command is None:
        return []
    return command.split() if isinstance(command, str) else list(command)


def named_files(app: Application) -> list[Path]:
    commands = (app.setup, app.prepare, app.command, app.ready, app.load)
    return [
        Path(app.workdir or ".") / word
        for command in commands
        for word in words(command)
        if word.startswith(("programs/", "services/"))
    ]


@pytest.mark.parametrize("file", [*FILES, "demo.toml"])
def test_every_program_that_is_named_is_there(file: str) -> None:
    for app in load(EXAMPLES / file).values():
        assert [path for path in named_files(app) if not path.is_file()] == [], app.name


def test_the_demo_says_which_profiles_were_spoiled() -> None:
    """Its numbers look like a result, whatever they were measured next to."""
    script = importlib.util.spec_from_file_location("demo", EXAMPLES / "demo.py")
    assert script is not None
    assert script.loader is not None
    demo = importlib.util.module_from_spec(script)
    script.loader.exec_module(demo)
    calm = [{"app": "a", "profile": None}, {"app": "b", "profile": {"verdict": "usable"}}]
    busy = [{"app": name, "profile": {"verdict": "spoiled"}} for name in ("c", "d")]
    assert demo.spoiled(calm) == ""
    assert "the profile of c is spoiled" in demo.spoiled([*calm, busy[0]])
    assert "the profiles of c and d are spoiled" in demo.spoiled([*calm, *busy])


def test_what_is_held_out_is_not_tuned_on() -> None:
    tuned, held_out = (load(EXAMPLES / file) for file in FILES)
    assert not tuned.keys() & held_out.keys()
    assert not {identity(app) for app in tuned.values()} & {
        identity(app) for app in held_out.values()
    }


def test_all_that_is_held_out_checks_its_output() -> None:
    held_out = load(EXAMPLES / "holdout.toml")
    assert [name for name, app in held_out.items() if app.check is None] == []

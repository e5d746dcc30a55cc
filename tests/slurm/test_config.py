"""Settings of kongming-slurm, its unit and its page in the manual."""

from __future__ import annotations

import re
import tomllib

import pytest
from kongming_slurm import bridge_config as config
from kongming_slurm import commands

from kongming import settings as declared
from kongming.records.errors import InputError
from tests.server.process import ROOT

PAGE = ROOT / "docs/slurm.md"
UNIT = ROOT / "daemon/deploy/slurm/kongming-slurm.service"
NAME = "settings of kongming-slurm"


def with_table(page: str) -> str:
    """The page with the table of settings as they are declared."""
    from tests.docs.marked_tables import replaced, table
    from tests.docs.tables import code

    rows = (
        (f"`{row.key}`", code(row.default), row.allowed, row.help)
        for row in declared.table(config.Settings)
    )
    settings = table(("setting", "default", "allowed", "what it does"), rows)
    return replaced(page, {NAME: settings})


def test_the_page_has_every_setting_as_it_is_declared() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page) == page, "run: python -m tests.slurm.test_config"


def test_all_that_the_page_names_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    keys = {row.key for row in declared.table(config.Settings)}
    sections = {key.partition(".")[0] for key in keys}
    named = re.findall(r"`(\w+)\.(\w+)`", page)
    assert [f"{s}.{k}" for s, k in named if s in sections and f"{s}.{k}" not in keys] == []
    for path in re.findall(r"`(daemon/deploy/\S+?)`", page):
        assert (ROOT / path).exists(), path
    for option in re.findall(r"kongming-slurm bridge (--[a-z-]+)", page):
        assert any(option in each.opts for each in commands.bridge_cli.params), option


def test_the_printed_defaults_are_the_defaults() -> None:
    assert (
        declared.parse(config.Settings, tomllib.loads(declared.as_file(config.Settings)))
        == config.Settings()
    )


def test_the_script_and_the_settings_name_one_file() -> None:
    script = (ROOT / "daemon/deploy/slurm/job_submit.lua").read_text()
    assert f'or "{config.Settings().rankings.file}"' in script


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"server": {"address": "nowhere"}}, "server.address"),
        ({"rankings": {"limit": 0.5}}, "rankings.limit"),
        ({"rankings": {"refresh_s": 100.0}}, "rankings.good_for_s"),
        ({"rankings": {"apps": "xz"}}, "rankings.apps"),
        ({"weights": {"follow": 1}}, "weights.follow"),
        ({"weights": {"speed": 1}}, "weights.speed"),
        ({"limits": {}}, "limits"),
    ],
)
def test_an_invalid_setting_is_named(document: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as raised:
        declared.parse(config.Settings, document)
    assert raised.value.field == field


def test_flags_win_over_the_file(tmp_path: object) -> None:
    settings = declared.load(config.Settings, None, {"server.address": "host:1", "server.ca": None})
    assert settings.server == config.Server(address="host:1")


def test_the_unit_starts_the_bridge() -> None:
    lines = UNIT.read_text().splitlines()
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert start == "ExecStart=/usr/bin/kongming-slurm bridge --config %d/slurm.toml"
    assert "StateDirectory=kongming-slurm" in lines
    assert "User=slurm" in lines


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

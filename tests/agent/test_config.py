from __future__ import annotations

from pathlib import Path

import pytest
from kongming_agent import agent_config as config

from kongming import settings as declared
from kongming.records.errors import InputError
from tests import builders


def test_without_a_file_every_setting_has_its_default() -> None:
    assert declared.load(config.Settings) == config.Settings()


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[probing]\nperiod_s = 60\n[profile]\nallow = ["sort"]\n')
    settings = declared.load(config.Settings, file)
    assert settings.probing.period_s == 60.0
    assert settings.profile.allow == ("sort",)
    assert settings.budget == config.Budget()


@pytest.mark.parametrize(
    ("document", "field", "says"),
    [
        ({"probes": {}}, "probes", "probing"),
        ({"probing": {"period": 1}}, "probing.period", "period_s"),
        ({"probing": {"period_s": 0}}, "probing.period_s", "above 0"),
        ({"probing": {"period_s": "soon"}}, "probing.period_s", "a number"),
        ({"probing": {"period_s": True}}, "probing.period_s", "a number"),
        ({"probing": {"period_s": float("nan")}}, "probing.period_s", "above 0"),
        ({"budget": {"cpu_share": 2.0}}, "budget.cpu_share", "up to 1"),
        ({"server": {"address": "nowhere"}}, "server.address", "is not allowed."),
        ({"server": {"address": "nowhere"}}, "server.address", "HOST:PORT"),
        ({"profile": {"allow": "sort"}}, "profile.allow", "NAME"),
        ({"profile": {"placement": "near"}}, "profile.placement", "cross-core"),
        ({"probing": 3}, "probing", "[probing]"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_allowed(
    document: dict[str, object], field: str, says: str
) -> None:
    with pytest.raises(InputError) as caught:
        declared.parse(config.Settings, document)
    assert caught.value.field == field
    assert says in str(caught.value)


def test_a_file_that_is_no_toml_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        declared.load(config.Settings, tmp_path / "absent.toml")
    file = tmp_path / "agent.toml"
    file.write_text("[probing\n")
    with pytest.raises(InputError, match="TOML"):
        declared.load(config.Settings, file)


def test_flags_win_over_the_file_and_those_not_given_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('[server]\naddress = "a:1"\nca = "ca.pem"\n')
    settings = declared.load(config.Settings, file, {"server.address": "b:2", "server.ca": None})
    assert settings.server.address == "b:2"
    assert settings.server.ca == "ca.pem"
    with pytest.raises(InputError, match=r"server\.address"):
        declared.load(config.Settings, file, {"server.address": "b"})


def test_the_table_states_every_setting_with_a_default_that_passes_its_own_check() -> None:
    document: dict[str, dict[str, object]] = {}
    for row in declared.table(config.Settings):
        assert row.help.endswith(".")
        assert row.allowed
        section, _, key = row.key.partition(".")
        document.setdefault(section, {})[key] = (
            list(row.default) if isinstance(row.default, tuple) else row.default
        )
    assert declared.parse(config.Settings, document) == config.Settings()


def test_the_state_folder_is_the_one_that_systemd_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    assert config.Files().state_path() == tmp_path
    assert config.Files(state="/elsewhere").state_path() == Path("/elsewhere")


def test_a_node_may_be_told_who_it_is() -> None:
    facts = builders.node(id="made-of-hardware", name="host")
    assert config.Node().identified(facts) == facts
    identified = declared.parse(
        config.Settings, {"node": {"id": "second", "name": "node-2"}}
    ).node.identified(facts)
    assert (identified.id, identified.name) == ("second", "node-2")
    assert identified.cpus == facts.cpus

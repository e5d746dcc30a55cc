"""The table of settings, and what a configuration file may say."""

from __future__ import annotations

from pathlib import Path

import pytest
from kongming_server.commands import server_config as config

from kongming import settings as declared
from kongming.addresses import split_address
from kongming.records.errors import InputError, UnknownNameError


def test_without_a_file_every_setting_has_its_default() -> None:
    loaded = config.load()
    for setting in declared.table(config.Config):
        section, _, name = setting.key.partition(".")
        assert getattr(getattr(loaded, section), name) == setting.default


def test_every_setting_is_explained_and_its_default_is_allowed() -> None:
    for setting in declared.table(config.Config):
        assert setting.help.endswith("."), setting.key
        assert config.load(options={setting.key: setting.default})
        if setting.kind in (int, float) and setting.key.endswith("_s"):
            assert setting.unit == "s", setting.key


def test_a_file_is_read_and_options_win_over_it(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    path.write_text('[server]\nlisten = "127.0.0.1:1"\nhttp = ""\n[fleet]\nwatchers = 7\n')
    loaded = config.load(path, {"server.listen": "127.0.0.1:2", "server.store": None})
    assert (loaded.server.listen, loaded.server.http, loaded.fleet.watchers) == (
        "127.0.0.1:2",
        "",
        7,
    )


def test_a_whole_number_stands_for_a_number() -> None:
    assert config.load(options={"server.grace_s": 3}).server.grace_s == 3.0


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[fleet]\nwatchers = 0", "fleet.watchers"),
        ("[fleet]\nwatchers = 1.5", "fleet.watchers"),
        ("[fleet]\nwatchers = true", "fleet.watchers"),
        ("[fleet]\nfingerprint_ttl_s = nan", "fleet.fingerprint_ttl_s"),
        ('[server]\nlog_level = "loud"', "server.log_level"),
        ("[server]\nlisten = 7400", "server.listen"),
        ("server = 1", "server"),
        ("[fleet]\nsilent_after_s = 10\nheartbeat_period_s = 10", "fleet.silent_after_s"),
        ("[server]\nstore = 'sqlite:///a'\nstore_file = 'b'", "server.store_file"),
        (
            "[assignments]\nreservation_ttl_s = 10\nreservation_ttl_max_s = 5",
            "assignments.reservation_ttl_s",
        ),
        ('[training]\nmodels = ","', "training.models"),
        ('[otel]\nendpoint = "x"', "otel.endpoint"),
        ('[otel]\nendpoint = "http://[x"', "otel.endpoint"),
        ('[otel]\nendpoint = "http:///x"', "otel.endpoint"),
        ('[otel]\nendpoint = "collector:otlp"', "otel.endpoint"),
        ('[otel]\nendpoint = "unix://run/otel.sock"', "otel.endpoint"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        config.load(path)
    assert refused.value.field == field
    assert refused.value.allowed


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://[::1]:4317",
        "https://collector",
        "grpc://collector:4317",
        "collector:4317",
        "[::1]:4317",
        "dns:///collector:4317",
        "unix:///run/otel.sock",
        "unix:run/otel.sock",
    ],
)
def test_a_receiver_of_metrics_is_a_url_an_address_or_a_target_of_grpc(endpoint: str) -> None:
    assert config.load(options={"otel.endpoint": endpoint}).otel.endpoint == endpoint


def test_a_model_that_is_none_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(UnknownNameError, match="CART") as refused:
        config.load(options={"training.models": "LM, CARTT"})
    assert refused.value.field == "training.models"
    assert config.load(options={"training.models": "LM, CART"}).training.models == "LM, CART"


@pytest.mark.parametrize("text", ["[flet]\nwatchers = 1", "[fleet]\nwatcher = 1"])
def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path: Path, text: str) -> None:
    path = tmp_path / "server.toml"
    path.write_text(text)
    with pytest.raises(UnknownNameError, match="Did you mean fleet"):
        config.load(path)


def test_a_file_that_is_no_toml_or_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    with pytest.raises(InputError, match="cannot be read"):
        config.load(path)
    path.write_text("[fleet")
    with pytest.raises(InputError, match="not TOML"):
        config.load(path)


@pytest.mark.parametrize(
    "text", ["", "host", ":1", "host:", "host:x", "host:65536", "host:-1", "host:²"]
)
def test_an_address_needs_a_host_and_a_port(text: str) -> None:
    with pytest.raises(InputError) as refused:
        split_address(text, "server.listen")
    assert refused.value.field == "server.listen"


def test_addresses_of_both_kinds_are_understood() -> None:
    assert split_address("127.0.0.1:0", "x") == ("127.0.0.1", 0)
    assert split_address("[::1]:7400", "x") == ("::1", 7400)

"""The manual names every setting, metric and call as the programs declare them."""

from __future__ import annotations

import re

import pytest
from kongming_agent import agent_config as agent_config
from kongming_agent.reporting import metrics as agent_metrics
from kongming_extender.metrics import DECLARED as EXTENDER_METRICS
from kongming_extender.metrics import PREFIX
from kongming_server.configuration import settings as server_settings
from kongming_server.monitoring import metrics as server_metrics

from kongming import settings as declared
from tests.docs import commands, tables

PAGE = tables.PAGE.read_text(encoding="utf-8")
SERVER_METRICS = (*server_metrics.DECLARED, *server_metrics.FLEET_FAMILIES)
_AGAIN = "run: python -m tests.docs.tables"


def test_the_tables_are_as_the_programs_declare_them() -> None:
    assert tables.with_tables(PAGE) == PAGE, _AGAIN


def test_every_setting_has_a_line() -> None:
    keys = [row.key for row in declared.table(server_settings.Config)] + [
        row.key for row in declared.table(agent_config.Settings)
    ]
    assert len(keys) > 80
    assert [key for key in keys if f"| `{key}` |" not in PAGE] == [], _AGAIN


def test_every_metric_has_a_line() -> None:
    names = [metric.name for metric in SERVER_METRICS]
    names += [f"{agent_metrics.PREFIX}{metric.name}" for metric in agent_metrics.METRICS]
    assert len(names) > 50
    assert [name for name in names if f"| `{name}` |" not in PAGE] == [], _AGAIN


def test_what_the_text_names_exists() -> None:
    settings = {row.key for row in declared.table(server_settings.Config)}
    settings |= {row.key for row in declared.table(agent_config.Settings)}
    sections = {key.partition(".")[0] for key in settings}
    named = re.findall(r"`(\w+)\.(\w+)`", PAGE)
    assert [f"{s}.{k}" for s, k in named if s in sections and f"{s}.{k}" not in settings] == []
    metrics = {metric.name for metric in SERVER_METRICS}
    metrics |= {f"{agent_metrics.PREFIX}{metric.name}" for metric in agent_metrics.METRICS}
    metrics |= {f"{PREFIX}{metric.name}" for metric in EXTENDER_METRICS}
    assert set(re.findall(r"\bkongming_(?:server|agent|extender)_\w+", PAGE)) - metrics == set()


def test_what_it_links_to_and_runs_is_there() -> None:
    for path in re.findall(r"`((?:systemd|kubernetes|prometheus|grafana)/\S+)`", PAGE):
        assert (tables.ROOT / "daemon/deploy" / path).exists(), path
    for module in re.findall(r"python -m (benchmarks[\w.]+)", PAGE):
        assert (tables.ROOT / f"{module.replace('.', '/')}.py").is_file(), module
    for path in re.findall(r"python (benchmarks/\S+?\.py)", PAGE):
        assert (tables.ROOT / path).is_file(), path


@pytest.mark.parametrize(
    "words", commands.in_page(tables.PAGE), ids=lambda words: " ".join(words)[:60]
)
def test_the_programs_know_each_command(words: list[str]) -> None:
    assert commands.unknown(words) == []


def test_a_wrong_option_or_command_is_found() -> None:
    assert commands.unknown(["kongming", "rank", "xz", "--severe", "a"]) == [
        "kongming rank --severe"
    ]
    assert commands.unknown(["kongming-server", "tokens"]) == ["kongming-server tokens"]

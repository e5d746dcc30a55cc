"""The tables of docs/operations.md, made of what the programs themselves declare.

python -m tests.docs.tables    writes them into the page again
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kongming_agent import agent_config as agent_config
from kongming_agent.reporting import metrics as agent_metrics
from kongming_server.configuration import settings as server_settings
from kongming_server.monitoring import metrics as server_metrics
from kongming_server.security.roles import PERMISSIONS, PUBLIC, Role

from kongming import settings as declared
from tests.docs.marked_tables import replaced, table

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/operations.md"
RULES = ROOT / "daemon/deploy/prometheus/kongming.rules.yml"


def tables() -> dict[str, str]:
    """The text of each table by its name in the page."""
    return {
        "settings of kongming-server": table(
            ("setting", "default", "allowed", "unit", "what it does"),
            (
                (f"`{row.key}`", code(row.default), row.allowed, row.unit, row.help)
                for row in declared.table(server_settings.Config)
            ),
        ),
        "settings of kongming-agent": table(
            ("setting", "default", "allowed", "what it does"),
            (
                (f"`{row.key}`", code(row.default), row.allowed, row.help)
                for row in declared.table(agent_config.Settings)
            ),
        ),
        "metrics of kongming-server": table(
            ("metric", "kind", "labels", "what it says"),
            (
                (f"`{metric.name}`", metric.kind, ", ".join(metric.labels), metric.help)
                for metric in (*server_metrics.DECLARED, *server_metrics.FLEET_FAMILIES)
            ),
        ),
        "alerts": table(
            ("alert", "fires where", "for", "means", "do"),
            (
                (
                    f"`{rule['alert']}`",
                    f"`{rule['expr']}`",
                    rule["for"],
                    *_summary_and_action(rule["annotations"]),
                )
                for rule in alerts()
            ),
        ),
        "metrics of kongming-agent": table(
            ("metric", "kind", "labels", "what it says"),
            (
                (
                    f"`{agent_metrics.PREFIX}{metric.name}`",
                    metric.kind,
                    ", ".join(metric.labels),
                    metric.help,
                )
                for metric in agent_metrics.METRICS
            ),
        ),
        "roles": table(
            ("call", *(role.value for role in Role)),
            (
                (f"`{method.removeprefix('/')}`", *("yes" if r in who else "" for r in Role))
                for method, who in [
                    *PERMISSIONS.items(),
                    *((method, frozenset(Role)) for method in sorted(PUBLIC)),
                ]
            ),
        ),
    }


def alerts() -> list[dict[str, Any]]:
    """The alert rules that are shipped."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def _summary_and_action(annotations: Mapping[str, str]) -> tuple[str, str]:
    return annotations["summary"], annotations["action"]


def with_tables(page: str) -> str:
    return replaced(page, tables())


def code(value: object) -> str:
    return f"`{json.dumps(value)}`"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

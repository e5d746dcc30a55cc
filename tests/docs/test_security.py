"""docs/security.md names what there is: roles, settings, targets and pages."""

from __future__ import annotations

import re

from kongming_agent import agent_config as agent_config
from kongming_server.configuration import settings as server_settings
from kongming_server.security.roles import Role

from kongming import settings as declared
from tests.docs import tables

FILE = tables.ROOT / "docs/security.md"
PAGE = FILE.read_text(encoding="utf-8")


def test_every_role_has_a_line_and_the_page_is_found() -> None:
    for role in Role:
        assert f"| `{role}` |" in PAGE
    for page in ("README.md", "docs/operations.md"):
        assert "security.md)" in (tables.ROOT / page).read_text(encoding="utf-8")


def test_settings_and_targets_that_it_names_exist() -> None:
    keys = {row.key for row in declared.table(server_settings.Config)} | {
        row.key for row in declared.table(agent_config.Settings)
    }
    assert set(re.findall(r"`((?:server|security|profile)\.\w+)", PAGE)) <= keys
    makefile = (tables.ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make (\w+)`", PAGE):
        assert f"\n{target}: " in makefile

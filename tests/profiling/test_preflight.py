"""What of an applications file would fail at once."""

from __future__ import annotations

from kongming.cli.profile.preflight import problems
from kongming.records.application import Application


def test_missing_programs_and_misspelt_placeholders_are_seen() -> None:
    apps = {
        name: Application(name=name, command=command)
        for name, command in {
            "gone": "LC_ALL=C nosuchprogram --fast",
            "typo": "sort {dri}/numbers",
            "fine": "for i in 1 2; do awk '{print}' {dir}/x; done",
            "argv": ("nosuchprogram", "x"),
        }.items()
    }
    messages = problems(apps)
    assert set(messages) == {"gone", "typo", "argv"}
    assert messages["gone"] == "command: there is no program 'nosuchprogram' in PATH."
    assert "Did you mean {dir}?" in messages["typo"]

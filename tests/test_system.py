"""What the tests print of programs that are not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import system, warm_start

ROOT = Path(__file__).resolve().parent.parent


def test_the_last_line_is_what_was_left_out(tmp_path: Path) -> None:
    file = tmp_path / "test_skip.py"
    file.write_text("import pytest\n\ndef test_it() -> None:\n    pytest.skip('not here')\n")
    options = [f"--rootdir={tmp_path}", "-ra", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    # It starts no program of ours: nothing has to be imported for that.
    environment = os.environ | {"PATH": "/nonexistent", "PYTHONPATH": path, warm_start.COLD: "1"}
    for name in (system.REQUIRE, *(n for n in environment if n.startswith("PYTEST_"))):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(file)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    *others, last = done.stdout.rstrip().splitlines()
    assert any("1 skipped" in line for line in others), done.stdout + done.stderr
    assert last.startswith("Left out, since they are not installed:")

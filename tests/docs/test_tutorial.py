"""Every command of the pages that say so runs, in the order printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kongming.probes.node import node_facts
from kongming.profiling.plans.placement import available
from tests.campaigns.conftest import hasty_surrogates
from tests.docs import commands
from tests.docs.tables import ROOT

PAGES = (ROOT / "docs" / "tutorial.md", ROOT / "docs" / "explore.md", ROOT / "README.md")
HASTY = "KONGMING_TEST_HASTY"
"""Where it is set, surrogates are timed hastily and nothing waits for other measurements: the
commands are tested, and what they measure is worth nothing."""

_BLOCK = re.compile(r"^<!-- run(?:: once)? -->\n```\n(.*?)^```", re.MULTILINE | re.DOTALL)


def script(page: Path) -> str:
    """The commands of a page, one shell script that ends at the first failure."""
    blocks = _BLOCK.findall(page.read_text())
    assert blocks, page
    return "\n".join(["set -eu", *blocks])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_programs_know_each_command(page: Path) -> None:
    """The cheap half: no measuring."""
    named = [words for words in commands.in_page(page) if words[0] == "kongming"]
    assert len(named) >= 5
    assert [wrong for words in named for wrong in commands.unknown(words)] == []


def test_cleaning_up_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "kongming-tutorial").mkdir()
    (tmp_path / "kongming-tutorial" / "tutorial.db").touch()
    cache = tmp_path / ".cache" / "kongming"
    cache.mkdir(parents=True)
    named = re.search(r'file_name\[\] = "(.+)"', (ROOT / "microbench" / "io_file.c").read_text())
    assert named
    (cache / named[1]).touch()
    last = _BLOCK.findall(PAGES[0].read_text())[-1]
    done = subprocess.run(
        ["bash", "-c", f"set -eu\n{last}\necho ${{KONGMING_STORE-unset}}"],
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "KONGMING_STORE": "sqlite:///x"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "unset\n"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert not (tmp_path / "kongming-tutorial").exists()


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_runs_in_the_order_printed(page: Path, tmp_path: Path) -> None:
    if available(node_facts())["cross-core"] is not None:
        pytest.skip("the pages are for a machine with two cores that share a cache")
    home = tmp_path / "home"
    home.mkdir()
    # What `. .venv/bin/activate` is in a checkout.
    folder = Path(sys.executable).parent
    (home / ".venv").symlink_to(folder.parent, target_is_directory=True)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("KONGMING")
    }
    ours = {"HOME": str(home), "KONGMING_DIR": str(tmp_path / "io"), "COLUMNS": "100"}
    if HASTY in os.environ:
        ours |= {**hasty_surrogates(), "KONGMING_LOCKS": str(tmp_path / "locks")}
    done = subprocess.run(
        ["bash", "-c", script(page)],
        cwd=home,
        env=inherited | ours,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "error:" not in done.stderr

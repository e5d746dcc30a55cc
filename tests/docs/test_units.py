"""The services of the units start with settings that root alone can read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs import units
from tests.docs.test_deploy import DEPLOY

CHECKOUT = Path(__file__).resolve().parent.parent.parent

SETTINGS = {
    "server.toml": "[server]\nlisten = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n",
    "agent.toml": "[server]\naddress = '127.0.0.1:1'\n[metrics]\nlisten = ''\n",
}

LATE = {
    "server": "import encodings.idna, encodings.utf_8_sig\n"
    "import kongming_server.app, kongming_server.calls.interceptors\n"
    "from kongming.store import Store\n"
    "Store.open('sqlite://').close()",
    "agent": "import encodings.idna, encodings.utf_8_sig, kongming.rpc.client",
}
"""What the programs load when they run."""


@pytest.fixture
def root() -> Iterator[Path]:
    """A root that every user may pass through, as none of pytest's own folders is."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a program as another user")
    if not all(folder.stat().st_mode & 0o001 for folder in (CHECKOUT, *CHECKOUT.parents)):
        pytest.skip(f"other users may not read {CHECKOUT}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        etc = path / "etc/kongming"
        etc.mkdir(parents=True)
        for name, text in SETTINGS.items():
            (etc / name).write_text(text)
            (etc / name).chmod(0o600)
        etc.chmod(0o700)
        yield path


@pytest.mark.parametrize(("program", "ready"), [("server", "listening grpc="), ("agent", "node ")])
def test_a_unit_starts_with_settings_that_root_alone_can_read(
    root: Path, program: str, ready: str
) -> None:
    process = units.start(DEPLOY / f"systemd/kongming-{program}.service", root, LATE[program])
    seen = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            if ready in line:
                break
        else:
            pytest.fail("".join(seen))
        process.terminate()
        rest, _ = process.communicate(timeout=60)
        assert process.returncode == 0, "".join(seen) + rest
    finally:
        process.kill()
        process.wait()
    state = {"server": "kongming-server/kongming.db", "agent": "kongming/spool.db"}[program]
    assert (root / "var/lib" / state).stat().st_uid == units.USER

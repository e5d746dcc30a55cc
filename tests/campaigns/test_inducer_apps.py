"""Programs as loads of a profile: from the command to what is stored, planned and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kongming.profiling.plans.identity import identity
from kongming.records.application import Application
from kongming.store import Store
from tests import builders
from tests.campaigns.conftest import QUICK, steps
from tests.conftest import Kongming

pytestmark = pytest.mark.real

SAME_CORE = (*QUICK, "--placement", "same-core", "--seed", "1")


def programs(folder: Path) -> Path:
    """One that is half as fast while another holds a lock, that one, and a short one."""
    lock = folder / "lock"
    free = f"flock -n {lock} true && sleep 0.05 && flock -n {lock} true"
    file = folder / "apps.toml"
    file.write_text(
        f"""
[apps.rate]
command = "if {free}; then echo rate 100; else echo rate 50; fi"
metric = {{ pattern = 'rate (\\d+)', unit = "ops/s", better = "higher" }}
[apps.press]
command = "flock {lock} sleep 0.8"
[apps.blink]
command = "sleep 0.01"
[apps.fails]
command = "sleep 0.7; exit 3"
"""
    )
    return file


@pytest.mark.thorough
def test_a_program_as_a_load_is_an_environment_of_its_own_signature(
    kongming: Kongming, store_url: str, tmp_path: Path, hasty: Path
) -> None:
    args = (
        "profile",
        programs(tmp_path),
        "--app",
        "rate",
        "--inducer-app",
        "press",
        *SAME_CORE,
    )

    def planned() -> dict[str, object]:
        document: dict[str, object] = json.loads(kongming(*args, "--dry-run", "--json").stdout)
        return document

    before = planned()
    assert before["steps"] == 8
    assert before["assumed_seconds"] == {"press": 5.0, "rate": 5.0}
    part = kongming(*args, "--budget", "1ms", "--json")
    assert part.returncode == 0, part.stderr
    assert json.loads(part.stdout)["complete"] is False
    complete = json.loads(kongming(*args, "--json").stdout)
    assert (complete["complete"], complete["failed"]) == (True, 0)
    assert set(complete["apps"]) == {"rate"}
    assert steps(store_url) == list(range(8))
    with Store.open(store_url) as store:
        (colocated,) = [run for run in store.runs(app="rate") if run.neighbours]
        (signature,) = store.signatures(app="press")
    assert (colocated.kind, colocated.neighbours, colocated.levels) == ("induced", ("press",), ())
    assert (colocated.metric, colocated.families) == (50.0, frozenset())
    assert colocated.fingerprint is not None
    assert colocated.fingerprint.times() == signature.fingerprint.times()
    assert colocated.before is not None
    assert colocated.after is not None
    # Its signature is there by now: another campaign has one step less.
    assert planned()["steps"] == 7


@pytest.mark.thorough
def test_a_program_that_fails_or_is_too_short_as_a_load_is_reported(
    kongming: Kongming, store_url: str, tmp_path: Path, hasty: Path
) -> None:
    file = programs(tmp_path)
    loads = ("--inducer-app", "fails", "--inducer-app", "blink")
    done = kongming("profile", file, "--app", "rate", *loads, *SAME_CORE, "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    # What surrogates induced is there all the same.
    assert (document["complete"], document["failed"]) == (True, 2)
    reasons = " ".join(document["apps"]["rate"]["reasons"])
    assert "fails has no signature here" in reasons
    assert "blink is too short for an inducer" in reasons
    with Store.open(store_url) as store:
        failed = [run for run in store.runs() if not run.ok]
    assert sorted(run.kind for run in failed) == ["induced", "induced", "signature"]
    for words, expected in (
        (("--app", "press", "--inducer-app", "press"), ("--inducer-app", "'press'", "--app")),
        (("--inducer-app", "pres"), ("--inducer-app", "Did you mean press")),
        (("--inducer-app", "press", "--plan", "adaptive", "--runs", "9"), ("--plan quick",)),
    ):
        refused = kongming("profile", file, *words, "--dry-run")
        assert refused.returncode == 2
        for word in expected:
            assert word in refused.stderr
    with Store.open(store_url) as store:
        its = identity(Application("blink", "sleep 0.01"))
        store.add_run(builders.run("blink", 0.01, node_id=failed[0].node_id, identity=its))
    known = kongming("profile", file, "--app", "rate", "--inducer-app", "blink", *SAME_CORE[4:])
    assert known.returncode == 2
    assert "--inducer-app" in known.stderr
    assert "larger input" in known.stderr

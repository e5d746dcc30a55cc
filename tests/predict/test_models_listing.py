"""``kongming models`` says which models are damaged, as the server that leaves them out does."""

from __future__ import annotations

import json
from pathlib import Path

from kongming.files.sealed_document import checksum
from kongming.learning.training import train_application
from kongming.store import Store
from tests import builders
from tests.conftest import Kongming
from tests.server.profiles.profiled import campaign


def test_a_damaged_version_in_service_is_reported(tmp_path: Path, kongming: Kongming) -> None:
    url = f"sqlite:///{tmp_path / 'models.db'}"
    document = train_application(campaign("prog"), models=("LM",))
    # Another number in it, and the old checksum.
    damaged = document | {"solo": document["solo"] | {"median": 99.0}}
    with Store.open(url) as store:
        store.put_node(builders.node())
        for version in (damaged, document):
            store.put_model("prog", document["identity"], "node-1", "cross-core", version)
        store.promote("prog", "cross-core", 1)
    done = kongming("models", "--store", url, "--json")
    newest, serving = json.loads(done.stdout)["models"]
    assert (newest["version"], newest["in_service"], newest["problem"]) == (2, False, None)
    assert (serving["version"], serving["in_service"]) == (1, True)
    assert "checksum" in serving["problem"]
    shown = kongming("models", "--store", url).stdout
    assert "in service, damaged" in " ".join(shown.split())
    assert "version 1 of prog at cross-core cannot be used" in " ".join(shown.split())


def test_a_version_of_a_newer_kongming_is_not_said_to_be_damaged(
    tmp_path: Path, kongming: Kongming
) -> None:
    url = f"sqlite:///{tmp_path / 'models.db'}"
    document = train_application(campaign("prog"), models=("LM",))
    newer = {key: value for key, value in document.items() if key != "checksum"} | {"version": 99}
    with Store.open(url) as store:
        store.put_node(builders.node())
        store.put_model(
            "prog",
            document["identity"],
            "node-1",
            "cross-core",
            newer | {"checksum": checksum(newer)},
        )
    (listed,) = json.loads(kongming("models", "--store", url, "--json").stdout)["models"]
    assert listed["newer"]
    assert "has version 99" in listed["problem"]
    shown = " ".join(kongming("models", "--store", url).stdout.split())
    assert "in service, newer" in shown
    assert "damaged" not in shown

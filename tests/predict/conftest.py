"""A store in which programs were profiled, trained and really run next to each other."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from kongming.learning.training import train_application
from kongming.store import Store
from tests import builders
from tests.models import synthetic

PROGRAMS = {
    "chaser": ({"memory.random.128M": 0.6}, {"memory": 0.5}),
    "writer": ({"iobench.write.4M": 0.5}, {"write": 0.6}),
    "caller": ({"os.syscall": 0.7}, {"os": 0.4}),
    "number": ({"compute.int": 0.8}, {"compute": 0.3}),
}
"""By name: sensitivity, and the load on others."""


@pytest.fixture(scope="session")
def corun_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database; tests take a copy of it."""
    path = tmp_path_factory.mktemp("corun-store") / "store.db"
    random = np.random.default_rng(5)
    signatures = {name: synthetic.signature(name, loads) for name, (_, loads) in PROGRAMS.items()}
    with Store.open(f"sqlite:///{path}") as store:
        store.put_node(builders.node())
        for name, (powers, _) in PROGRAMS.items():
            runs = synthetic.campaign(name, powers)
            store.add_all(runs=runs, signatures=[signatures[name]])
            # Of one program also what a genetic search selected, which takes longest.
            models = ("NNLS", "LM.GA") if name == "chaser" else ("NNLS",)
            document = train_application(runs, models=models)
            store.put_model(name, document["identity"], "node-1", "cross-core", document)
        coruns = [builders.run(name, 3.0, campaign="pairs") for name in PROGRAMS]
        for name, (powers, _) in PROGRAMS.items():
            for other, seen in signatures.items():
                slowed = synthetic.slowdown(powers, seen.fingerprint.times())
                metric = 3.0 * slowed * math.exp(0.15 * random.standard_normal())
                coruns.append(
                    builders.run(name, metric, kind="corun", neighbours=(other,), campaign="pairs")
                )
        store.add_all(runs=coruns, signatures=[])
    return path


@pytest.fixture
def corun(corun_store: Path, store_url: str) -> str:
    """The URL of a copy, which the command finds by itself."""
    shutil.copy(corun_store, store_url.removeprefix("sqlite:///"))
    return store_url

"""Processes that write to one store: ``python -m tests.store.writers runs|campaign URL ...``."""

from __future__ import annotations

import sys

from kongming.store import Store
from tests import builders


def add_runs(url: str, count: str, app: str) -> None:
    """Add so many runs, and print the id of each once it is acknowledged."""
    with Store.open(url) as store:
        for step in range(int(count)):
            run = builders.run(app, 1.0, {"stream.triad": 1e-9}, step=step)
            store.add_run(run)
            print(run.id, flush=True)  # noqa: T201


def open_campaign(url: str) -> None:
    """Print the id of the campaign that all open, and the version of a model of its own."""
    with Store.open(url) as store:
        campaign = store.open_campaign("key", {})
        version = store.put_model("a", "i", "n", "cross-core", {})
        print(campaign.id, version)  # noqa: T201


if __name__ == "__main__":
    {"runs": add_runs, "campaign": open_campaign}[sys.argv[1]](*sys.argv[2:])

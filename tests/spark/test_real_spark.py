"""A real Spark writes logs here and now, and they are read: left out where there is no Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from kongming.spark.reading import read
from tests import system
from tests.spark.record import log_of

pytestmark = [
    pytest.mark.real,
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool({"Java", "PySpark"} & set(system.missing())), reason="needs Java and PySpark"
    ),
]


def test_a_cluster_that_loses_an_executor_writes_a_rolling_log(tmp_path: Path) -> None:
    """Two executors in processes of their own, with the settings of ``kongming spark conf``."""
    from kongming.cli.spark.conf import SETTINGS

    python = str(system.PYSPARK / "bin" / "python")
    application = read(log_of("killed_executor", python, tmp_path, SETTINGS))
    kinds = {finding.kind for finding in application.findings}
    assert application.complete
    assert "lost-executors" in kinds
    assert not kinds & {"broken-lines", "damaged-files", "filled-in-tasks", "clock"}
    assert len(application.executors) >= 2
    assert all(len(stage.tasks) for stage in application.stages)
    assert application.spark_version.startswith("4.")

"""A job's contexts are its own: what determines a column, and which names were run."""

from __future__ import annotations

from pathlib import Path

import pytest

from kongming.cli.scale.predict import at_context
from kongming.records.errors import InputError, UnknownNameError
from kongming.scale.fit.contexts.context_fitting import fit_contexts
from kongming.scale.fit.contexts.context_model import never_run
from kongming.scale.fit.fitting import Settings
from kongming.scale.fit.scale_file import ScaleFile
from kongming.scale.fit.terms import read_terms
from kongming.scale.points import Configuration
from kongming.scale.table import Columns, read_context_table

ROWS = [
    ("A", "large", 10, ((2, 100), (4, 55), (8, 30))),
    ("A", "small", 20, ((2, 200), (4, 110), (8, 62))),
    ("A", "small", 30, ((2, 300), (4, 160))),
    ("B", "tiny", 10, ((2, 110), (4, 60), (8, 33))),
    ("B", "mini", 20, ((2, 220), (4, 120), (8, 60))),
    ("B", "mini", 10, ((2, 130), (4, 70))),
]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> ScaleFile:
    path = tmp_path_factory.mktemp("jobs") / "runs.csv"
    rows = [f"{job},{m},{t},{kind},{size}" for job, kind, size, of in ROWS for m, t in of]
    path.write_text("job,machines,seconds,type,size\n" + "\n".join(rows) + "\n")
    tables = read_context_table(path, Columns(group="job"), ("type", "size"))
    settings = Settings(read_terms("default", items=None))
    models = tuple(fit_contexts(table, settings) for table in tables)
    return ScaleFile("jobs", "2026-01-01T00:00:00Z", (), contexts=models)


def test_a_name_that_the_job_was_run_at_is_no_misspelling(jobs: ScaleFile) -> None:
    model = at_context(jobs, ["type=large,size=10"], "A").single("A")
    assert never_run(jobs.contexts, [model]) == []
    assert not model.predict(Configuration(4)).extrapolating
    other = at_context(jobs, ["type=large,size=10"], "B").single("B")
    assert never_run(jobs.contexts, [other]) == ["no run was at type=large: known are mini, tiny"]


def test_what_the_job_determines_need_not_be_given(jobs: ScaleFile) -> None:
    """In A the type large has a single size."""
    assert at_context(jobs, ["type=large"], "A").single("A").context == {
        "type": "large",
        "size": 10.0,
    }
    with pytest.raises(InputError, match="size"):
        at_context(jobs, ["type=small"], "A")


def test_the_job_is_checked_before_its_context(jobs: ScaleFile) -> None:
    with pytest.raises(InputError, match=r"--group.*A, B"):
        at_context(jobs, ["type=large"], None)
    with pytest.raises(UnknownNameError, match="job in the model"):
        at_context(jobs, ["type=large"], "C")


def test_the_job_at_a_single_machine_count_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "job,machines,seconds,size\nA,2,100,10\nA,4,60,10\nA,4,90,20\nB,4,60,10\nB,4,90,20\n"
    )
    message = r"rows 4 to 5, column 'machines'.* all runs of B are at one machine count"
    with pytest.raises(InputError, match=message):
        read_context_table(path, Columns(group="job"), ("size",))

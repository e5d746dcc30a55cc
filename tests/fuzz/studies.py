"""Files of studies and of agents: tables, scale models, journals, observations, spools."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from kongming_agent.reporting import delivery
from kongming_agent.reporting.spool import Spool
from kongming_slurm.slurm_commands import Slurm

from kongming.audit import journal
from kongming.audit.readings import read_observations, table_of, write_observations
from kongming.audit.steps import Reading, Step
from kongming.campaigns.journal import Journal
from kongming.files import sealed_document
from kongming.records.errors import KongmingError
from kongming.scale.decide.readings import readings
from kongming.scale.decide.recommendation import read_prices
from kongming.scale.design.candidates import candidates
from kongming.scale.design.planning import read_costs, read_design
from kongming.scale.fit import model_file as scale_file
from kongming.scale.table import read_table
from kongming.simulate.fleet import read_fleet
from kongming.simulate.pair_files import read_pairs
from kongming.simulate.trace import read_trace
from tests import builders
from tests.audit import sessions
from tests.fuzz.mutations import contents, documents, texts
from tests.fuzz.target import Target, file_of
from tests.models import synthetic
from tests.scale import shapes

TABLES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "costs": (
        "machines,scale,cost\n1,0.1,5\n2,0.1,6\n",
        lambda path: read_costs(path, candidates([1, 2], [0.1]), None),
    ),
    "fleet": ("name,nodes,slots,speed,weight\na,2,2,1.5,1\n", read_fleet),
    "pairs": (
        "app,neighbour,slowdown,solo_s,predicted,predicted_upper\nsort,scan,1.2,2,1.1,1.3\n",
        read_pairs,
    ),
    "prices": ("type,price\nsmall,0.1\nlarge,0.2\n", read_prices),
    "readings": (
        "node,memory.random.8M\na,2e-8\nb,3e-8\n",
        lambda path: readings([path], "memory"),
    ),
    "runs": ("machines,scale,time\n1,1,10\n2,1,6\n4,1,4\n", read_table),
    "trace": (
        "submit_s,app,work_s\n0,sort,1\n2.5,scan,3\n",
        lambda path: read_trace(path, ("sort", "scan"), np.array([1.0, 2.0]), 1.5),
    ),
}


def table_draws() -> st.SearchStrategy[tuple[str, bytes]]:
    return st.sampled_from(sorted(TABLES)).flatmap(
        lambda name: st.tuples(st.just(name), contents([TABLES[name][0].encode()]))
    )


def table(drawn: tuple[str, bytes]) -> None:
    name, content = drawn
    with file_of(content, ".csv") as path:
        TABLES[name][1](path)


# -- documents


@cache
def _scale_model() -> dict[str, Any]:
    shape = shapes.published(next(iter(shapes.PUBLISHED)))
    fitted = shapes.fitted(shapes.measured(shape, shapes.grid(), 0.01))
    return scale_file.seal(scale_file.ScaleFile("job", "2026-01-01T00:00:00Z", (fitted,)))


DESIGN = {"version": 1, "experiments": [{"machines": 4, "scale": 0.1, "runs": 1}]}

PAIRS = {
    "kind": "pairs",
    "placement": "cross-core",
    "pairs": [
        {
            "app": "sort",
            "neighbour": "scan",
            "measured": 1.3,
            "slowdown": 1.3,
            "repeats": [1.3, 1.2],
            "predictions": {"auto": {"value": 1.2, "upper": 1.4}},
        }
    ],
}


def scale_model(document: Any) -> None:
    """With a checksum that fits, so that what is behind it is read."""
    if isinstance(document, dict):
        payload = {key: value for key, value in document.items() if key != "checksum"}
        with suppress(TypeError, ValueError, OverflowError):
            document = payload | {"checksum": sealed_document.checksum(payload)}
    scale_file.read(document)


STUDIES: dict[str, tuple[Any, Callable[[Path], object]]] = {
    "design": (DESIGN, read_design),
    "pairs": (PAIRS, read_pairs),
}


def study_draws() -> st.SearchStrategy[tuple[str, bytes]]:
    def drawn(name: str) -> st.SearchStrategy[tuple[str, bytes]]:
        seed = STUDIES[name][0]
        raw = documents([seed]).map(lambda document: json.dumps(document).encode())
        return st.tuples(st.just(name), raw | contents([json.dumps(seed).encode()]))

    return st.sampled_from(sorted(STUDIES)).flatmap(drawn)


def study(drawn: tuple[str, bytes]) -> None:
    name, content = drawn
    with file_of(content, ".json") as path:
        STUDIES[name][1](path)


# -- what is written while something is measured


@cache
def _observed() -> bytes:
    reading = Reading("surrogate", "chase", 1e-9, "s", 1e-9, 2e-9, 30)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        with journal.Journal(path) as recording:
            recording.begin(journal.Header("s1", 7, {"suite": "quick"}, sessions.session()))
            for position in range(2):
                recording.add(Step("2026-03-01T12:00:00.250Z", position, 0, 1, 1.5, (reading,)))
        return path.read_bytes()


def observed_draws() -> st.SearchStrategy[bytes]:
    """Its lines as they are damaged on a disk, and with other values in them."""
    lines = [json.loads(line) for line in _observed().splitlines()]
    return contents([_observed()]) | _changed(lines)


def _changed(lines: list[Any]) -> st.SearchStrategy[bytes]:
    return st.tuples(*(st.just(line) | documents([line]) for line in lines)).map(
        lambda parsed: b"".join(json.dumps(document).encode() + b"\n" for document in parsed)
    )


def observed(content: bytes) -> None:
    with file_of(content) as path:
        with suppress(KongmingError):
            journal.header_of(path)
        list(journal.steps_of(path))


@cache
def _observations() -> bytes:
    row = sessions.reading("chase", 1e-8)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        write_observations(path, table_of([row]), {row["session"]: sessions.session()})
        return path.read_bytes()


def observations(content: bytes) -> None:
    with file_of(content) as path:
        read_observations([path])


@cache
def _campaign() -> bytes:
    """As a campaign that was interrupted leaves it."""
    with tempfile.TemporaryDirectory() as folder:
        with closing(Journal(Path(folder), "x", by="agent")) as campaign_journal:
            campaign_journal.begin("c", {"app": "sort"})
            campaign_journal.add(builders.run("sort", 1.0))
        return campaign_journal.path.read_bytes()


def campaign_draws() -> st.SearchStrategy[bytes]:
    return contents([_campaign()]) | _changed([json.loads(x) for x in _campaign().splitlines()])


def campaign(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.jsonl").write_bytes(content)
        with closing(Journal(Path(folder), "x", by="agent")) as campaign_journal:
            assert len(campaign_journal.records) <= content.count(b"\n")


@cache
def _spool() -> tuple[bytes, bytes]:
    """The file, and the bytes of one of its records."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spool.db"
        with closing(Spool(path)) as spool:
            spool.add_run(builders.run("sort", 1.0))
            spool.add_signature(builders.signature("sort", synthetic.IDLE))
            body = spool.oldest()[0].body
        return path.read_bytes(), body


def spool_draws() -> st.SearchStrategy[tuple[bytes, bytes | None]]:
    file, body = _spool()
    return st.tuples(contents([file]), st.none()) | st.tuples(st.just(file), contents([body]))


def spool(drawn: tuple[bytes, bytes | None]) -> None:
    """A file that is damaged, or one in which a record is: sent as far as it can be."""
    content, body = drawn
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spool.db"
        path.write_bytes(content)
        if body is not None:
            with closing(sqlite3.connect(path)) as database, database:
                database.execute("UPDATE records SET body = ?", (body,))
        with closing(Spool(path)) as opened:
            for entry in opened.oldest():
                with suppress(KongmingError):
                    delivery.runs_of("node-1", [entry])
            opened.add_run(builders.run("sort", 1.0))
            opened.counts()


# -- what Slurm's commands print

SLURM = (
    "n1|1|idle|p*|infinite\nn2|2|mixed|p|2:00:00\n",
    "NodeName=n1 CPUEfctv=6 RealMemory=9 CoreSpecCount=1 MemSpecLimit=4 ThreadsPerCore=2\n",
    "12|12|30|p|kongming:app=xz,limit=1.2\n",
    "12|n[1-3]\n",
    "ClusterName = c\n",
)


def slurm(output: str) -> None:
    commands = Slurm(command=lambda words: output)
    reads = (commands.nodes, commands.pending_jobs, commands.jobs_with_nodes, commands.cluster)
    for read in reads:
        with suppress(KongmingError):
            read()


TARGETS: dict[str, Target] = {
    "campaign journals": Target(campaign_draws, campaign),
    "observation journals": Target(observed_draws, observed),
    "observations": Target(lambda: contents([_observations()]), observations),
    "scale models": Target(lambda: documents([_scale_model()]), scale_model),
    "slurm": Target(lambda: texts(SLURM), slurm),
    "spools": Target(spool_draws, spool),
    "studies": Target(study_draws, study),
    "tables": Target(table_draws, table),
}

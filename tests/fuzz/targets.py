"""``TARGETS``: everything that reads what others wrote, by name."""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError, Message
from hypothesis import strategies as st
from kongming_extender.pods import demand_of, pod_of
from kongming_extender.protocol import read_args
from kongming_server.calls.decoding import count_parts
from kongming_server.configuration.settings import Config
from kongming_slurm import hostlist, ranking_file, tags

from kongming import expressions, settings
from kongming.learning import model_file
from kongming.learning.training import train_application
from kongming.profiling import appfile
from kongming.records.errors import KongmingError
from kongming.records.fingerprint import Fingerprint, NodeFacts
from kongming.records.run import Run, Signature
from kongming.rpc import bounds, fleet_codec, handover, predictor_codec, record_codec
from kongming.rpc.v1 import assignments_pb2, fleet_pb2, predictor_pb2, profiles_pb2, records_pb2
from kongming.scale import ranges
from kongming.store import Store
from kongming.store.parquet import export_runs, read_export
from kongming.store.reference import Reference
from tests import builders
from tests.fuzz import spark_logs, studies
from tests.fuzz.mutations import contents, documents, texts
from tests.fuzz.target import Target, file_of
from tests.models import synthetic
from tests.server.profiles.profiled import campaign

# -- the wire


def _messages() -> dict[str, type[Message]]:
    classes: dict[str, type[Message]] = {}
    for module in (assignments_pb2, fleet_pb2, predictor_pb2, profiles_pb2, records_pb2):
        for name in module.DESCRIPTOR.message_types_by_name:
            classes[name] = getattr(module, name)
    return classes


DECODERS: dict[type[Message], Callable[[Any], object]] = {
    assignments_pb2.Assignment: fleet_codec.assignment_from_message,
    fleet_pb2.Node: fleet_codec.node_report_from_message,
    predictor_pb2.PredictAnswer: predictor_codec.answer_from_message,
    predictor_pb2.PredictColocationRequest: predictor_codec.colocation_from_message,
    predictor_pb2.PredictQuestion: predictor_codec.question_from_message,
    predictor_pb2.RankNodesRequest: predictor_codec.rank_from_message,
    profiles_pb2.Application: fleet_codec.application_from_message,
    profiles_pb2.Model: fleet_codec.model_from_message,
    profiles_pb2.Operation: fleet_codec.operation_from_message,
    records_pb2.Fingerprint: record_codec.fingerprint_from_message,
    records_pb2.NodeFacts: record_codec.node_from_message,
    records_pb2.Run: record_codec.run_from_message,
    records_pb2.Signature: record_codec.signature_from_message,
}


def wire_draws() -> st.SearchStrategy[tuple[str, bytes]]:
    live = builders.fingerprint(synthetic.IDLE)
    run = builders.run("sort", 1.0)
    seeds = [
        b"",
        record_codec.node_to_message(builders.node()).SerializeToString(),
        record_codec.fingerprint_to_message(live).SerializeToString(),
        record_codec.run_to_message(run).SerializeToString(),
        record_codec.signature_to_message(
            builders.signature("sort", synthetic.IDLE)
        ).SerializeToString(),
    ]
    return st.tuples(st.sampled_from(sorted(_messages())), contents(seeds))


def wire(drawn: tuple[str, bytes]) -> None:
    name, content = drawn
    kind = _messages()[name]
    assert count_parts(content, kind.DESCRIPTOR, 1 << 40) <= len(content)
    try:
        message = kind.FromString(content)
    except DecodeError:
        return
    bounds.check(message)
    if kind in DECODERS:
        DECODERS[kind](message)


# -- documents of records and models


RECORDS: dict[str, Callable[[Any], object]] = {
    "fingerprint": Fingerprint.from_dict,
    "node": NodeFacts.from_dict,
    "reference": Reference.from_dict,
    "run": Run.from_dict,
    "signature": Signature.from_dict,
}


def record_draws() -> st.SearchStrategy[tuple[str, Any]]:
    reference = Reference("node-1", "1", 0, synthetic.IDLE, 3, "2026-01-01T00:00:00Z")
    seeds: dict[str, Any] = {
        "fingerprint": builders.fingerprint(synthetic.IDLE).to_dict(),
        "node": builders.node().to_dict(),
        "reference": reference.to_dict(),
        "run": builders.run("sort", 1.0).to_dict(),
        "signature": builders.signature("sort", synthetic.IDLE).to_dict(),
    }
    return st.sampled_from(sorted(seeds)).flatmap(
        lambda kind: st.tuples(st.just(kind), documents([seeds[kind]]))
    )


def record(drawn: tuple[str, Any]) -> None:
    kind, document = drawn
    if isinstance(document, dict):
        RECORDS[kind](document)


@cache
def _model() -> dict[str, Any]:
    return train_application(campaign("prog"), models=("LM", "CART"))


def model_draws() -> st.SearchStrategy[Any]:
    return documents([_model()])


def model(document: Any) -> None:
    """With a checksum that fits, so that what is behind it is read."""
    if isinstance(document, dict):
        with suppress(TypeError, ValueError, OverflowError):
            document = model_file.seal({k: v for k, v in document.items() if k != "checksum"})
    model_file.read(document)


# -- files

TOML = [
    '[apps.sort]\ncommand = "sort {input}"\nsetup = "true"\ntimeout_s = 10\n'
    'metric = { pattern = "took ([0-9.]+)", unit = "s", better = "lower" }\n',
    '[apps.a]\ncommand = ["a", "b"]\n[apps.a.env]\nX = "1"\n',
]

RANKINGS = [
    "kongming-rankings 1\nwritten 1\ngood-for 2\nlimit 1.2\nnodes a b\nup 1 1\ncpus 2 2\n"
    "memory 10 10\npartition p 1 2\napp sort 1.0 2.0\nend 10\n",
]

WORDS = ["kongming:app=xz,limit=1.2", "n[1-3,7],m4", "scale ** 2 / machines", "1..8", "1k..4M"]


def apps(text: str) -> None:
    with suppress(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    with file_of(text.encode("utf-8", "replace")) as path:
        appfile.load(path)


@cache
def _export() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        with Store.open(f"sqlite:///{folder}/store.db") as store:
            store.add_run(builders.run("sort", 1.0))
            export_runs(store, Path(folder) / "x.parquet")
        return (Path(folder) / "x.parquet").read_bytes()


def parquet(content: bytes) -> None:
    with file_of(content) as path:
        read_export(path)


def rows_draws() -> st.SearchStrategy[Any]:
    run = builders.run("sort", 1.0)
    document = run.to_dict() | {"fingerprint": None, "before": None, "after": None}
    return documents([{"record": "run", "kind": "solo", "document": document}])


def rows(drawn: Any) -> None:
    """Rows of an export whose documents were changed."""
    import pyarrow
    import pyarrow.parquet as pq

    from kongming.store import parquet as exports

    row = drawn if isinstance(drawn, dict) else {}
    columns = {name: [str(row.get(name))] for name in ("record", "kind")}
    columns["document"] = [json.dumps(row.get("document"), default=str)]
    table = pyarrow.table(
        {k: [v[0].encode("utf-8", "replace").decode()] for k, v in columns.items()}
    ).replace_schema_metadata({exports._FORMAT_KEY: str(exports.FORMAT).encode()})
    with tempfile.NamedTemporaryFile() as file:
        pq.write_table(table, file.name)
        read_export(file.name)


def spool(content: bytes) -> None:
    """A report that a prolog left for the agent."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "1.report").write_bytes(content)
        list(handover.waiting(Path(folder)))


def spool_draws() -> st.SearchStrategy[bytes]:
    seed = {"format": 3, "kind": "run", "assignment_id": "1", "app": "xz", "at": 1.0, "wall_s": 2.0}
    return contents([json.dumps(seed).encode()]) | documents([seed]).map(
        lambda document: json.dumps(document).encode()
    )


# -- batch systems and settings


def words(text: str) -> None:
    tags.tag(text)
    tags.note(text)
    for read in (hostlist.expand, expressions.parse, ranges.machine_counts, ranges.scales):
        with suppress(KongmingError):
            read(text)


def extender_draws() -> st.SearchStrategy[bytes]:
    pod = {
        "metadata": {"name": "a", "uid": "u", "annotations": {"kongming.dev/limit": "1.2"}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]},
    }
    seed = {"Pod": pod, "NodeNames": ["a", "b"], "Nodes": None}
    return contents([json.dumps(seed).encode()]) | documents([seed]).map(
        lambda document: json.dumps(document).encode()
    )


def extender(body: bytes) -> None:
    args = read_args(body)
    demand_of(args.pod)
    pod_of(args.pod)


def toml_settings(text: str) -> None:
    with file_of(text.encode("utf-8", "replace")) as path:
        settings.load(Config, path)


TARGETS: dict[str, Target] = (
    studies.TARGETS
    | spark_logs.TARGETS
    | {
        "apps": Target(lambda: texts(TOML), apps),
        "expressions, host lists and tags": Target(lambda: texts(WORDS), words),
        "extender": Target(extender_draws, extender),
        "models": Target(model_draws, model),
        "parquet": Target(lambda: contents([_export()]), parquet),
        "rankings": Target(lambda: texts(RANKINGS), ranking_file.parse),
        "records": Target(record_draws, record),
        "reports": Target(spool_draws, spool),
        "rows": Target(rows_draws, rows),
        "settings": Target(lambda: texts([settings.as_file(Config)[:3000]]), toml_settings),
        "wire": Target(wire_draws, wire),
    }
)

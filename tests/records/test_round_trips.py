"""Records survive their JSON form, and what is implausible or too new is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kongming
from kongming import Fingerprint, LoadLevel, NodeFacts, Reading, Run, Signature
from kongming.records.errors import ImplausibleError, IncompatibleError, InputError
from kongming.records.fingerprint import FAMILIES, PLACEMENTS
from kongming.records.run import RUN_KINDS, Usage, solo_time
from tests import builders

seconds = st.floats(min_value=1e-10, max_value=1e3, allow_nan=False)
shares = st.floats(min_value=0.0, max_value=1e9, allow_nan=False)
names = st.sampled_from(
    ["memory.random.1K", "stream.triad", "iobench.read.4M", "os.switch", "net.loopback"]
)
exact = st.integers(-(2**53), 2**53)
texts = st.text(max_size=20)


@st.composite
def readings(draw: st.DrawFn, name: str) -> Reading:
    if draw(st.booleans()):
        # A failed reading is its reason alone.
        return Reading(name=name, family="", error=draw(st.text(min_size=1, max_size=20)))
    return builders.reading(
        name,
        draw(seconds),
        median=draw(seconds),
        p90=draw(seconds),
        n=draw(st.integers(1, 10**6)),
        size_bytes=draw(st.none() | st.integers(0, 2**40)),
        partial=draw(st.booleans()),
        direct=draw(st.none() | st.booleans()),
    )


@st.composite
def fingerprints(draw: st.DrawFn) -> Fingerprint:
    chosen = draw(st.lists(names, unique=True, min_size=1))
    return builders.fingerprint(
        {},
        surrogates={name: draw(readings(name)) for name in chosen},
        passive=draw(st.dictionaries(texts, shares, max_size=3)),
        warnings=tuple(draw(st.lists(texts, max_size=2))),
        cpu=draw(st.integers(0, 512)),
        node=builders.node(
            hypervisor=draw(st.none() | texts), cgroup={"cpu_quota": draw(st.none() | shares)}
        ),
    )


@st.composite
def levels(draw: st.DrawFn) -> LoadLevel:
    return LoadLevel(
        surrogate=draw(names),
        family=draw(st.sampled_from(FAMILIES)),
        intensity=draw(st.floats(min_value=0.01, max_value=1.0)),
        copies=draw(st.integers(1, 64)),
    )


@st.composite
def runs(draw: st.DrawFn) -> Run:
    return builders.run(
        draw(texts),
        draw(st.none() | seconds),
        placement=draw(st.sampled_from(PLACEMENTS)),
        kind=draw(st.sampled_from(RUN_KINDS)),
        better=draw(st.sampled_from(["lower", "higher"])),
        levels=tuple(draw(st.lists(levels(), max_size=2))),
        neighbours=tuple(draw(st.lists(texts, max_size=2))),
        fingerprint=draw(st.none() | fingerprints()),
        before=draw(st.none() | fingerprints()),
        exit_status=draw(st.none() | st.integers(0, 255)),
        step=draw(st.integers(-1, 1000)),
        config=draw(st.dictionaries(texts, exact | texts | st.booleans(), max_size=2)),
        parts=draw(st.dictionaries(texts, shares, max_size=2)),
    )


def through_json(document: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(document, allow_nan=False)))


@given(fingerprints())
def test_fingerprint_survives_json(fingerprint: Fingerprint) -> None:
    assert Fingerprint.from_dict(through_json(fingerprint.to_dict())) == fingerprint


@given(runs())
def test_run_survives_json(run: Run) -> None:
    assert Run.from_dict(through_json(run.to_dict())) == run


@given(fingerprints(), st.integers(1, 100))
def test_signature_survives_json(fingerprint: Fingerprint, iterations: int) -> None:
    signature = builders.signature("app", {}, fingerprint=fingerprint, iterations=iterations)
    assert Signature.from_dict(through_json(signature.to_dict())) == signature


def test_node_survives_json() -> None:
    node = builders.node()
    assert NodeFacts.from_dict(through_json(node.to_dict())) == node


RECORDS: list[tuple[Any, dict[str, Any]]] = [
    (Fingerprint, builders.fingerprint({"stream.triad": 1e-9}).to_dict()),
    (Run, builders.run("app", 1.0).to_dict()),
    (Signature, builders.signature("app", {"stream.triad": 1e-9}).to_dict()),
]


@pytest.mark.parametrize(("record", "document"), RECORDS)
def test_newer_schema_is_refused(record: Any, document: dict[str, Any]) -> None:
    with pytest.raises(IncompatibleError, match="Upgrade"):
        record.from_dict(document | {"schema": 2})


@pytest.mark.parametrize(("record", "document"), RECORDS)
@pytest.mark.parametrize("schema", [None, "1", 0, -1, True, 1.5])
def test_schema_that_is_no_version_is_refused(
    record: Any, document: dict[str, Any], schema: object
) -> None:
    with pytest.raises(InputError, match="schema"):
        record.from_dict(document | {"schema": schema})


@pytest.mark.parametrize("value", [0, 0.0, -1e-9, math.nan, math.inf, "1e-9", None, True])
@pytest.mark.parametrize("key", ["seconds_per_op", "median", "p90"])
def test_reading_that_cannot_be_true_is_refused(key: str, value: object) -> None:
    document = builders.reading("stream.triad", 1e-9).to_dict() | {key: value}
    with pytest.raises(InputError, match=rf"surrogates\.stream\.triad\.{key}"):
        Reading.from_dict("stream.triad", document)


def _reading(**changes: Any) -> Reading:
    return builders.reading("stream.triad", 1e-9, **changes)


def _fingerprint(**changes: Any) -> Fingerprint:
    return builders.fingerprint({"stream.triad": 1e-9}, **changes)


def _run(**changes: Any) -> Run:
    return replace(builders.run("sort", 1.0), **changes)


BELOW_0 = (-1, -1e-9, math.nan, math.inf, -math.inf)
NOT_FINITE = (math.nan, math.inf, -math.inf)

IMPLAUSIBLE: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    *(
        (f"surrogates.stream.triad.{key}", _reading, {key: value})
        for key in ("seconds_per_op", "median", "p90")
        for value in (0.0, *BELOW_0)
    ),
    *(
        (f"surrogates.stream.triad.{key}", _reading, {key: -1})
        for key in ("n", "ops", "size_bytes")
    ),
    *(("surrogates.stream.triad.elapsed_s", _reading, {"elapsed_s": value}) for value in BELOW_0),
    *(("surrogates.stream.triad.median", _reading, {"median": None}),),
    # A processor needs longer, and a probe is stopped before.
    *(
        ("surrogates.stream.triad.seconds_per_op", _reading, {"seconds_per_op": value})
        for value in (9e-13, 3601.0)
    ),
    *(("elapsed_s", _fingerprint, {"elapsed_s": value}) for value in BELOW_0),
    ("cpu", _fingerprint, {"cpu": -1}),
    *(("passive.load1", _fingerprint, {"passive": {"load1": value}}) for value in NOT_FINITE),
    *(("wall_s", _run, {"wall_s": value}) for value in BELOW_0),
    *(("metric", _run, {"metric": value}) for value in NOT_FINITE),
    *(("usage.cpu_s", Usage, {"cpu_s": value}) for value in BELOW_0),
    ("usage.page_faults", Usage, {"page_faults": -1}),
]


@pytest.mark.parametrize(("field", "build", "changes"), IMPLAUSIBLE)
def test_no_record_holds_what_cannot_be_true(
    field: str, build: Callable[..., Any], changes: dict[str, Any]
) -> None:
    with pytest.raises(ImplausibleError) as refused:
        build(**changes)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "build", "changes"),
    [
        ("started_at", _fingerprint, {"started_at": "yesterday"}),
        ("started_at", _run, {"started_at": "yesterday"}),
        ("passive.load1", _run, {"passive": {"load1": math.inf}}),
        ("parts.load", _run, {"parts": {"load": math.nan}}),
        ("config.a[1].b", _run, {"config": {"a": [0, {"b": math.nan}]}}),
        ("config.a", _run, {"config": {"a": -(2**53) - 1}}),
        ("node.cgroup.cpu_quota", builders.node, {"cgroup": {"cpu_quota": math.nan}}),
    ],
)
def test_what_is_only_malformed_is_not_called_implausible(
    field: str, build: Callable[..., Any], changes: dict[str, Any]
) -> None:
    with pytest.raises(InputError) as refused:
        build(**changes)
    assert refused.value.field == field
    assert not isinstance(refused.value, ImplausibleError)


def test_a_metric_that_is_not_above_0_is_kept_of_a_run_that_is_not_ok() -> None:
    assert not _run(metric=-1.0, wall_s=1.0).ok


@pytest.mark.parametrize("key", ["node", "surrogates", "suite", "suite_version", "cpu"])
def test_fingerprint_without_a_part_is_refused(key: str) -> None:
    document = builders.fingerprint({"stream.triad": 1e-9}).to_dict()
    del document[key]
    with pytest.raises(InputError, match=key):
        Fingerprint.from_dict(document)


@pytest.mark.parametrize("intensity", [0.0, -0.5, 1.01, math.nan])
def test_intensity_out_of_range_is_refused(intensity: float) -> None:
    with pytest.raises(InputError, match="intensity"):
        builders.level(intensity=intensity)


def test_failed_run_has_no_cost() -> None:
    failed = builders.run("app", None)
    assert not failed.ok
    with pytest.raises(ValueError, match="no metric"):
        _ = failed.cost


def test_cost_is_more_for_worse_where_higher_is_better() -> None:
    slow, fast = (builders.run("app", m, better="higher", metric_unit="ops/s") for m in (10, 20))
    assert slow.cost > fast.cost


def test_solo_time_is_the_median_of_good_solo_runs() -> None:
    solos = [builders.run("app", metric) for metric in (1.0, 1.1, 1.2, None)]
    loaded = builders.run("app", 9.0, levels=(builders.level(),))
    solo = solo_time([*solos, loaded])
    assert solo is not None
    assert (solo.median, solo.n) == (1.1, 3)
    assert solo.noise_pct == pytest.approx(100 * 0.05 / 1.1)
    assert solo_time([loaded]) is None


def test_public_names_are_there_and_sorted() -> None:
    assert kongming.__all__ == sorted(kongming.__all__)
    for name in kongming.__all__:
        assert hasattr(kongming, name)

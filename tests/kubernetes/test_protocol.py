"""The scheduler's JSON: requests and responses, byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kongming_extender.protocol import (
    ExtenderArgs,
    error_result,
    filter_result,
    priority_list,
    read_args,
)

from kongming.records.errors import InputError
from tests.kubernetes import clusters

GOLDEN = Path(__file__).parent / "golden"
FAILED = {"node-b": "kongming: etl would take 1.62 times as long as on an idle node"}
NAMES = st.lists(st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True), unique=True)


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes().rstrip(b"\n")


@pytest.mark.parametrize("mode", ["names", "nodes"])
def test_requests_as_the_scheduler_writes_them_are_read(mode: str) -> None:
    args = read_args(golden(f"args-{mode}.json"))
    assert list(args.names) == ["node-a", "node-b", "node-c"]
    assert args.pod["metadata"]["annotations"] == {
        "kongming.dev/app": "etl",
        "kongming.dev/limit": "1.2",
    }
    assert (args.items is None) == (mode == "names")
    assert not args.no_candidates


@pytest.mark.parametrize("mode", ["names", "nodes"])
def test_responses_are_the_published_types_byte_for_byte(mode: str) -> None:
    args = read_args(golden(f"args-{mode}.json"))
    assert filter_result(args, FAILED) == golden(f"filter-{mode}.json")
    assert filter_result(args, dict.fromkeys(args.names, "no")) == golden(f"none-{mode}.json")
    assert priority_list(args.names, [10, 0, 4]) == golden("priorities.json")


def test_responses_have_the_keys_of_the_published_types() -> None:
    result = {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    for answer in (
        filter_result(ExtenderArgs({}, ["a"]), {}),
        filter_result(ExtenderArgs({}, (), no_candidates=True), {}),
        error_result("why"),
    ):
        assert set(json.loads(answer)) == result
    assert json.loads(priority_list(["a"], [3])) == [{"Host": "a", "Score": 3}]
    assert priority_list((), ()) == b"[]"


def test_null_and_an_empty_list_are_both_no_node() -> None:
    """The scheduler reads null as no feasible node: candidates never become null."""
    pod = clusters.pod()
    no_names = read_args(clusters.args(pod, []))
    assert json.loads(filter_result(no_names, {}))["NodeNames"] == []
    nothing = read_args(clusters.compact({"Pod": pod, "Nodes": None, "NodeNames": None}))
    answer = json.loads(filter_result(nothing, {}))
    assert (answer["Nodes"], answer["NodeNames"]) == (None, None)
    nil_items = {"Pod": pod, "Nodes": {"metadata": {}, "items": None}, "NodeNames": None}
    assert json.loads(filter_result(read_args(clusters.compact(nil_items)), {}))["Nodes"] == {
        "metadata": {},
        "items": [],
    }


def test_names_count_where_both_are_given() -> None:
    both = {
        "Pod": clusters.pod(),
        "Nodes": {"metadata": {}, "items": [clusters.node("complete")]},
        "NodeNames": ["named"],
    }
    args = read_args(clusters.compact(both))
    assert list(args.names) == ["named"]
    assert args.items is None


@given(NAMES, st.data())
def test_the_response_divides_the_given_nodes(names: list[str], data: st.DataObject) -> None:
    failed = dict.fromkeys(data.draw(st.sets(st.sampled_from(names)) if names else st.just(())), "")
    pod = clusters.pod()
    by_name = json.loads(filter_result(read_args(clusters.args(pod, names)), failed))
    assert by_name["Nodes"] is None
    assert by_name["NodeNames"] == [name for name in names if name not in failed]
    assert set(by_name["FailedNodes"]) == set(failed)
    complete = json.loads(
        filter_result(read_args(clusters.args(pod, names, complete=True)), failed)
    )
    assert complete["NodeNames"] is None
    passing = [item["metadata"]["name"] for item in complete["Nodes"]["items"]]
    assert passing == by_name["NodeNames"]


@given(NAMES.filter(bool), st.booleans(), st.booleans())
def test_complete_nodes_come_back_unchanged(names: list[str], typed: bool, spaced: bool) -> None:
    """However they are written: the fast path is for Go's form alone."""
    nodes = [clusters.node(name) for name in names]
    if typed:
        nodes = [{"kind": "Node", "apiVersion": "v1", **node} for node in nodes]
    document = {
        "Pod": clusters.pod(app='a,"Nodes":{'),
        "Nodes": {"metadata": {"resourceVersion": "9"}, "items": nodes},
        "NodeNames": None,
    }
    body = json.dumps(document).encode() if spaced else clusters.compact(document)
    args = read_args(body)
    assert list(args.names) == names
    back = json.loads(filter_result(args, {}))
    assert back["Nodes"]["items"] == nodes


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"pod":{}}',
        b'{"Pod":null,"Nodes":null,"NodeNames":[]}',
        b'{"Pod":{},"Nodes":null,"NodeNames":"node-a"}',
        b'{"Pod":{},"Nodes":null,"NodeNames":[1]}',
        b'{"Pod":{},"Nodes":[],"NodeNames":null}',
        b'{"Pod":{},"Nodes":{"items":[{"metadata":{}}]},"NodeNames":null}',
        b'{"Pod":{,"Nodes":{"items":[{"metadata":{"name":"a"}}]},"NodeNames":null}',
        b'{"Pod":{},"Nodes":{"items":[{"metadata":{"name":"a"}},{]},"NodeNames":null}',
    ],
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(InputError):
        read_args(body)


KEYS = st.sampled_from(["Pod", "Nodes", "NodeNames", "items", "metadata", "name"])
LEAVES = st.none() | st.booleans() | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner)
)


@given(JSON)
def test_any_json_is_read_or_refused(document: Any) -> None:
    try:
        args = read_args(orjson.dumps(document))
    except InputError:
        return
    assert args.items is None or len(args.items) == len(args.names)

"""Requests of kube-scheduler to an extender and the answers that it takes, as JSON.

The types are ExtenderArgs, ExtenderFilterResult and HostPriorityList of
k8s.io/kube-scheduler/extender/v1. They have no JSON tags, so their keys are capitalised. Two of
the fields are alternatives: with nodeCacheCapable the scheduler sends NodeNames and Nodes is
null, without it Nodes (a NodeList) and NodeNames is null; the answer has to use the same one.

How the scheduler reads an answer to filter (HTTPExtender.Filter in pkg/scheduler/extender.go):

- a NodeNames that is not null counts only with nodeCacheCapable; else Nodes counts;
- where what counts is null, there is no feasible node: null never means "all of them";
- a name that was not among those sent, or an Error that is not empty, fails the whole call;
- any status but 200 fails the call. A failed call is passed over where the extender is ignorable,
  and fails the pod where it is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from kongming.records.errors import InputError

MAX_PRIORITY = 10
"""MaxExtenderPriority: the scheduler multiplies a priority by 10 and by the extender's weight."""

_NODES = b',"Nodes":{'
_ITEMS = b'"items":['
_END = b']},"NodeNames":null}'
_FIRST = b'{"metadata":{"name":"'
_NEXT = b"}," + _FIRST


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """ExtenderArgs. ``names`` are the candidates in the order in which they came. ``items`` is
    None where names came alone; else the JSON text of each node, and ``head`` that of the list
    around them, up to its items."""

    pod: Mapping[str, Any]
    names: Sequence[str]
    items: Sequence[bytes | memoryview] | None = None
    head: bytes = b'"metadata":{},'
    no_candidates: bool = False
    """Whether both NodeNames and Nodes are null."""


def read_args(body: bytes) -> ExtenderArgs:
    """Raises InputError where it is no ExtenderArgs."""
    args = _split(body)
    if args is not None:
        return args
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error}.", field="body") from error
    pod = document.get("Pod") if isinstance(document, dict) else None
    if not isinstance(pod, dict):
        raise InputError("is missing or no object.", field="Pod", allowed="a Pod")
    names, nodes = document.get("NodeNames"), document.get("Nodes")
    if names is not None:
        if not (isinstance(names, list) and all(type(name) is str for name in names)):
            raise InputError("is not a list of names.", field="NodeNames")
        return ExtenderArgs(pod, names)
    if nodes is None:
        return ExtenderArgs(pod, (), no_candidates=True)
    if not isinstance(nodes, dict):
        raise InputError("is no NodeList.", field="Nodes")
    items = nodes.get("items")
    try:
        node_names = [str(item["metadata"]["name"]) for item in items or ()]
    except (TypeError, KeyError) as error:
        raise InputError("holds a node without a name.", field="Nodes.items") from error
    return ExtenderArgs(pod, node_names, [orjson.dumps(item) for item in items or ()])


def _split(body: bytes) -> ExtenderArgs | None:
    """Split complete nodes as Go writes them, without parsing each: a node is tens of kilobytes, of
    which only the name matters here, and those that pass are sent back unchanged.

    None where the text has another form; then all of it is parsed. Quotes within strings are
    escaped in JSON, so that the delimiters cannot be part of a string, and no list within a node
    has elements that begin with metadata.
    """
    if not (body.startswith(b'{"Pod":{') and body.endswith(_END)):
        return None
    begin = body.find(_NODES)
    at = body.find(_ITEMS, begin)
    if begin < 0 or at < 0:
        return None
    head = body[begin + len(_NODES) : at]
    begins, end = at + len(_ITEMS), len(body) - len(_END)
    if not body.startswith(_FIRST, begins, end) or body[end - 1] != ord("}"):
        return None
    try:
        pod = orjson.loads(body[len(b'{"Pod":') : begin])
        orjson.loads(b"{%s%s]}" % (head, _ITEMS))
    except orjson.JSONDecodeError:
        return None
    starts, ends, names = [begins], [], []
    while True:
        name = starts[-1] + len(_FIRST)
        names.append(body[name : body.find(b'"', name)].decode("utf-8", "replace"))
        brace = body.find(_NEXT, name, end)
        if brace < 0:
            break
        ends.append(brace + 1)
        starts.append(brace + 2)
    ends.append(end)
    if not all(names) or any("\\" in name for name in names):
        return None
    view = memoryview(body)
    return ExtenderArgs(pod, names, [view[a:b] for a, b in zip(starts, ends, strict=True)], head)


def filter_result(args: ExtenderArgs, failed: Mapping[str, str]) -> bytes:
    """ExtenderFilterResult: all candidates but those in ``failed``, which has the reasons."""
    rest = b'"FailedNodes":%s,"FailedAndUnresolvableNodes":{},"Error":""}' % orjson.dumps(
        dict(failed)
    )
    if args.no_candidates:
        return b'{"Nodes":null,"NodeNames":null,' + rest
    if args.items is None:
        passing = [name for name in args.names if name not in failed] if failed else args.names
        return b'{"Nodes":null,"NodeNames":%s,%s' % (orjson.dumps(list(passing)), rest)
    # Tens of megabytes are joined once.
    parts: list[bytes | memoryview] = [b'{"Nodes":{', args.head, b'"items":[']
    for name, item in zip(args.names, args.items, strict=True):
        if name not in failed:
            parts += (item, b",")
    if parts[-1] == b",":
        parts.pop()
    return b"".join((*parts, b']},"NodeNames":null,', rest))


def priority_list(names: Sequence[str], priorities: Sequence[int]) -> bytes:
    """HostPriorityList: each candidate's priority, 0 to 10, more for better."""
    return orjson.dumps(
        [
            {"Host": name, "Score": priority}
            for name, priority in zip(names, priorities, strict=True)
        ]
    )


def error_result(message: str) -> bytes:
    """ExtenderFilterResult of a request that is refused; its status is not 200."""
    return orjson.dumps(
        {
            "Nodes": None,
            "NodeNames": None,
            "FailedNodes": None,
            "FailedAndUnresolvableNodes": None,
            "Error": message,
        }
    )

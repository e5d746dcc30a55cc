"""The wire contract keeps its own rules, and the generated code is the contract's."""

from __future__ import annotations

import importlib.resources
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kongming.rpc.v1 import fleet_pb2, predictor_pb2

protoc = pytest.importorskip("grpc_tools.protoc", reason="needs grpcio-tools")

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
FILES = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))

_MESSAGE, _ENUM, _SERVICE = 4, 5, 6
_FIELD = _VALUE = _METHOD = 2
"""Numbers of the parts in a descriptor's own messages, of which its comments' paths are made."""

File = descriptor_pb2.FileDescriptorProto


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[File]:
    """The contract's files as protoc reads them, with their comments."""
    out = tmp_path_factory.mktemp("proto") / "contract.bin"
    included = importlib.resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"-I{PROTO}",
        f"-I{included}",
        f"--descriptor_set_out={out}",
        "--include_source_info",
        *FILES,
    ]
    assert protoc.main(arguments) == 0
    return list(descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def methods(files: list[File]) -> Iterator[descriptor_pb2.MethodDescriptorProto]:
    for file in files:
        for service in file.service:
            yield from service.method


def commented_parts(file: File, requests: set[str]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Path and name of all that must have a comment. A call's request and response need none of
    their own next to that of the call, nor does an enum's value for 'not said'."""
    for i, message in enumerate(file.message_type):
        if message.name not in requests:
            yield (_MESSAGE, i), message.name
        for j, field in enumerate(message.field):
            yield (_MESSAGE, i, _FIELD, j), f"{message.name}.{field.name}"
    for i, enum in enumerate(file.enum_type):
        yield (_ENUM, i), enum.name
        for j, value in enumerate(enum.value):
            if value.number:
                yield (_ENUM, i, _VALUE, j), value.name
    for i, service in enumerate(file.service):
        yield (_SERVICE, i), service.name
        for j, method in enumerate(service.method):
            yield (_SERVICE, i, _METHOD, j), f"{service.name}.{method.name}"


def test_all_parts_have_a_comment(files: list[File]) -> None:
    requests = {
        name.rpartition(".")[2]
        for method in methods(files)
        for name in (method.input_type, method.output_type)
    }
    missing = []
    for file in files:
        comments = {
            tuple(place.path): place.leading_comments.strip()
            for place in file.source_code_info.location
        }
        missing += [name for path, name in commented_parts(file, requests) if not comments[path]]
    assert missing == []


def test_numbers_say_their_unit(files: list[File]) -> None:
    """A number has its unit in its name or in its comment."""
    numbers = {
        descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
        descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
    }
    words = re.compile(
        r"_(seconds|bytes|pct)\b|seconds|bytes|per cent|probability|ratio|fraction|share|0 to 1|"
        r"metric_unit|weight|score|log slowdown|geometric mean|duty cycle|slowdown|in the unit of",
        re.IGNORECASE,
    )
    missing = []
    for file in files:
        comments = {
            tuple(place.path): place.leading_comments for place in file.source_code_info.location
        }
        for i, message in enumerate(file.message_type):
            for j, field in enumerate(message.field):
                description = f"{field.name} {comments[(_MESSAGE, i, _FIELD, j)]}"
                if field.type in numbers and not words.search(description):
                    missing.append(f"{message.name}.{field.name}")
    assert missing == []


def test_files_are_of_one_package_that_mirrors_their_path(files: list[File]) -> None:
    for file in files:
        assert file.name.startswith("kongming/rpc/v1/")
        assert file.package == "kongming.rpc.v1"
        assert file.syntax == "proto3"
        assert file.options.go_package == "kongming.dev/rpc/v1;kongmingv1"


def test_names_are_as_buf_wants_them(files: list[File]) -> None:
    for file in files:
        for message in file.message_type:
            assert re.fullmatch(r"([A-Z][a-z0-9]*)+", message.name)
            for field in message.field:
                assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", field.name)
        for enum in file.enum_type:
            prefix = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", enum.name).upper()
            assert (enum.value[0].number, enum.value[0].name) == (0, f"{prefix}_UNSPECIFIED")
            assert all(value.name.startswith(f"{prefix}_") for value in enum.value)
        for service in file.service:
            for method in service.method:
                assert method.input_type == f".kongming.rpc.v1.{method.name}Request"
                assert method.output_type == f".kongming.rpc.v1.{method.name}Response"


def test_no_two_calls_share_a_message(files: list[File]) -> None:
    names = [name for m in methods(files) for name in (m.input_type, m.output_type)]
    assert len(names) == len(set(names))


def test_gaps_in_the_numbers_are_reserved(files: list[File]) -> None:
    for file in files:
        for message in file.message_type:
            used = {field.number for field in message.field}
            for span in message.reserved_range:
                used |= set(range(span.start, span.end))
            assert used == set(range(1, len(used) + 1)), message.name


def test_generated_code_is_the_contracts(tmp_path: Path) -> None:
    """Generating again changes nothing: 'make proto' does it where this fails."""
    plugins = Path(sys.executable).parent
    if not (plugins / "protoc-gen-mypy").exists():
        pytest.skip("needs mypy-protobuf")
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}"]
    command += [
        f"--{kind}_out={tmp_path}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")
    ]
    path = {"PATH": f"{plugins}:/usr/bin:/bin"}
    subprocess.run([*command, *FILES], check=True, env=path, capture_output=True, timeout=120)
    generated = {p.relative_to(tmp_path): p.read_text("utf-8") for p in tmp_path.rglob("*.py*")}
    committed = {
        p.relative_to(ROOT): p.read_text("utf-8")
        for p in (ROOT / "kongming" / "rpc" / "v1").glob("*_pb2*.py*")
    }
    assert len(generated) == 4 * len(FILES)
    assert sorted(generated) == sorted(committed)
    differing = [str(name) for name, text in generated.items() if committed[name] != text]
    assert differing == []


def test_kept_comments_are_the_contracts() -> None:
    """Taking them again changes nothing: 'make proto' does it where this fails."""
    taken = runpy.run_path(str(PROTO / "comments.py"))
    assert taken["OUT"].read_text("utf-8") == taken["text"]()
    assert taken["comments"]()["Interval.level"] == "Probability, above 0 and below 1."


def test_a_client_of_an_earlier_version_reads_what_it_knows_of_an_answer() -> None:
    """What was added since, such as whether the worst resident's slowdown is the least that it may
    be, is passed over by one that does not know it; and is false where an earlier server said
    nothing."""
    earlier = File()
    predictor_pb2.DESCRIPTOR.CopyToProto(earlier)
    ranked = next(message for message in earlier.message_type if message.name == "RankedNode")
    earlier_fields = [field for field in ranked.field if field.number <= 11]
    assert [field.name for field in ranked.field if field.number > 11] == [
        "worst_resident_at_least"
    ]
    del ranked.field[:]
    ranked.field.extend(earlier_fields)
    pool = descriptor_pool.DescriptorPool()
    for name in earlier.dependency:
        _add(pool, name)
    pool.Add(earlier)
    of_earlier = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("kongming.rpc.v1.RankNodesResponse")
    )
    node = predictor_pb2.RankedNode(
        node_id="n", worst_resident_slowdown=1.5, residents=2, worst_resident_at_least=True
    )
    answer = predictor_pb2.RankNodesResponse(nodes=[node], candidates=1)

    read = of_earlier.FromString(answer.SerializeToString())

    assert (read.candidates, len(read.nodes)) == (1, 1)
    assert {field.name: value for field, value in read.nodes[0].ListFields()} == {
        "node_id": "n",
        "worst_resident_slowdown": 1.5,
        "residents": 2,
    }
    sent = of_earlier(candidates=1)
    sent.nodes.add(node_id="n", worst_resident_slowdown=1.5)
    received = predictor_pb2.RankNodesResponse.FromString(sent.SerializeToString())
    assert not received.nodes[0].worst_resident_at_least
    assert received.nodes[0].worst_resident_slowdown == 1.5


def _add(pool: descriptor_pool.DescriptorPool, name: str) -> None:
    """A file of the contract and what it imports, once each."""
    file = File()
    descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    for imported in file.dependency:
        _add(pool, imported)
    pool.Add(file)


def test_an_answer_of_an_older_server_is_read() -> None:
    """Which sent how long fingerprints are valid, and nobody read it."""
    older = b"\x0a\x02\x08\x05" + b"\x12\x03\x08\xb4\x01" + b"\x18\x07"
    answer = fleet_pb2.RegisterResponse.FromString(older)
    assert (answer.heartbeat_period.seconds, answer.acknowledged) == (5, 7)
    description = descriptor_pb2.DescriptorProto()
    fleet_pb2.RegisterResponse.DESCRIPTOR.CopyToProto(description)
    assert [field.name for field in description.field] == ["heartbeat_period", "acknowledged"]
    assert [(numbers.start, numbers.end) for numbers in description.reserved_range] == [(2, 3)]

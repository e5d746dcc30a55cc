"""Write kongming/rpc/v1/comments.json: what the contract says of each of its parts.

Generated messages know no comments; the server's description of itself shows them.
"""

from __future__ import annotations

import importlib.resources
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

PROTO = Path(__file__).parent
OUT = PROTO.parent / "kongming" / "rpc" / "v1" / "comments.json"


def comments() -> dict[str, str]:
    """The comment before each message, field, enum and value, by its name within the package."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "contract.bin"
        included = importlib.resources.files("grpc_tools") / "_proto"
        arguments = ["protoc", f"-I{PROTO}", f"-I{included}", f"--descriptor_set_out={kept}"]
        files = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
        if protoc.main([*arguments, "--include_source_info", *files]) != 0:
            raise SystemExit(1)
        contract = descriptor_pb2.FileDescriptorSet.FromString(kept.read_bytes())
    return dict(sorted(pair for file in contract.file for pair in _of(file)))


def _of(file: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[str, str]]:
    said = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}
    # 4 and 5 are messages and enums in a file, 2 the fields and values in these.
    for of, kinds in ((4, file.message_type), (5, file.enum_type)):
        for i, kind in enumerate(kinds):
            parts = kind.field if of == 4 else kind.value
            named = [((of, i), kind.name)]
            named += [((of, i, 2, j), f"{kind.name}.{part.name}") for j, part in enumerate(parts)]
            for path, name in named:
                if text := re.sub(r"\s+", " ", said.get(path, "")).strip():
                    yield name, text


def text() -> str:
    """The file's text."""
    return json.dumps(comments(), indent=0, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    OUT.write_text(text(), encoding="utf-8")

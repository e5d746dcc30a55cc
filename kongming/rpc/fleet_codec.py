"""The messages of fleet, profiles and assignments as answers.

A state that only a newer server has promises nothing: it is read as the state that is acted on
least.
"""

from __future__ import annotations

from typing import Any

from kongming.records.answers import (
    ApplicationReport,
    Assignment,
    ModelReport,
    NodeReport,
    OperationReport,
)
from kongming.rpc.message_codec import from_message
from kongming.rpc.v1 import assignments_pb2, fleet_pb2, profiles_pb2


def node_report_from_message(message: fleet_pb2.Node) -> NodeReport:
    """Raises InputError where the facts are not valid."""
    return from_message(NodeReport, message, state=_state(message, "suspect"))


def assignment_from_message(message: assignments_pb2.Assignment) -> Assignment:
    return from_message(Assignment, message, state=_state(message, "expired"))


def application_from_message(message: profiles_pb2.Application) -> ApplicationReport:
    """Raises InputError where the document holds what JSON cannot."""
    return from_message(ApplicationReport, message)


def operation_from_message(message: profiles_pb2.Operation) -> OperationReport:
    return from_message(OperationReport, message, state=_state(message, "queued"))


def model_from_message(message: profiles_pb2.Model) -> ModelReport:
    return from_message(ModelReport, message)


def _state(message: Any, otherwise: str) -> str:
    enum = message.DESCRIPTOR.fields_by_name["state"].enum_type
    known = enum.values_by_number.get(message.state)
    if known is None or not known.number:
        return otherwise
    return str(known.name.removeprefix(enum.values[0].name.removesuffix("UNSPECIFIED")).lower())

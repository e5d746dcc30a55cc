"""Fit a model: a function from text to text that runs here or on a machine of a cluster.

It knows nothing of a store: what it is given is all that it reads.
"""

from __future__ import annotations

import json

from kongming.learning.training import train_application
from kongming.records.errors import KongmingError
from kongming.records.run import Run


def fit_text(text: str) -> str:
    """A training as JSON to its model document as JSON, or to the reason why there is none."""
    request = json.loads(text)
    try:
        document = train_application(
            [Run.from_dict(run) for run in request["runs"]],
            placement=request["placement"],
            model=request["model"],
            models=request["models"],
            random_state=request["random_state"],
        )
    except KongmingError as error:
        return json.dumps({"error": str(error)})
    return json.dumps({"document": document}, allow_nan=False)


def fit_bytes(text: bytes) -> bytes:
    """``fit_text`` on a machine of a cluster: an error is text too, and never an exception, which
    would have to travel as a pickled object."""
    try:
        return fit_text(text.decode()).encode()
    except Exception as error:
        return json.dumps({"error": f"Unexpected error: {error!r}"[:500]}).encode()

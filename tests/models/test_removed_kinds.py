"""Model documents of earlier versions, with kinds that are no longer trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kongming.files import sealed_document
from kongming.learning import model_file, predict
from kongming.learning.registry import REMOVED, model_kind, model_names
from kongming.learning.training import train_application
from kongming.records.errors import UnknownNameError
from tests.models import synthetic
from tests.variants import variants

WEIGHTS = (0.4, 0.3, 0.2, 0.1, 0.0, 0.0, 0.0)
"""Earlier versions learned weights of the stack's members."""

POWERS = {"memory.random.128M": 0.5, "iobench.write.4M": 0.4}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """A document with CART, HUBER and a stack, as this version writes it."""
    runs = synthetic.campaign("old", POWERS)
    return train_application(runs, models=("CART", "STACK"), model="CART", quick_columns=())


def renamed(document: dict[str, Any], old: str, new: str, chosen: str) -> dict[str, Any]:
    """The document with the model ``old`` under the name ``new``, and ``chosen`` in service."""
    variants = {}
    for name, variant in document["variants"].items():
        models = {new if key == old else key: model for key, model in variant["models"].items()}
        members = [new if key == old else key for key in models["STACK"]["frozen"]["members"]]
        weights = dict(zip(members, WEIGHTS, strict=True))
        stack = models["STACK"] | {"frozen": {"type": "stack", "members": weights}}
        variants[name] = variant | {"models": models | {"STACK": stack}, "chosen": chosen}
    payload = {key: value for key, value in document.items() if key != "checksum"}
    document = payload | {"variants": variants, "chosen": chosen, "version": 1}
    return {**document, "checksum": sealed_document.checksum(document)}


@pytest.mark.parametrize("removed", variants(REMOVED))
def test_a_removed_kind_in_service_still_predicts(removed: str, document: dict[str, Any]) -> None:
    old = model_file.read(renamed(document, "CART", removed, removed))
    now = model_file.read(document)
    times = np.exp(np.random.default_rng(0).normal(0.5, 0.5, (20, 1))) * now.variants["full"].idle
    assert old.variants["full"].model().name == removed
    np.testing.assert_array_equal(
        old.variants["full"].model().log_slowdown(times),
        now.variants["full"].model("CART").log_slowdown(times),
    )
    live = dict(zip(now.variants["full"].columns, times[0].tolist(), strict=True))
    prediction = predict.predict_environment(old, live)
    assert prediction.model == removed
    assert prediction.slowdown == predict.predict_environment(now, live, model="CART").slowdown


def test_a_stack_of_weights_still_predicts_with_a_removed_member(document: dict[str, Any]) -> None:
    members = document["variants"]["full"]["models"]["STACK"]["frozen"]["members"]
    old = model_file.read(renamed(document, members[1], "RIDGE.EIV", "STACK"))
    now = model_file.read(document).variants["full"]
    times = 2.0 * now.idle[None, :]
    np.testing.assert_allclose(
        old.variants["full"].model().log_slowdown(times),
        sum(w * now.model(m).log_slowdown(times) for m, w in zip(members, WEIGHTS, strict=True)),
    )


@pytest.mark.parametrize("removed", REMOVED)
def test_a_removed_kind_is_not_trained(removed: str) -> None:
    assert removed not in model_names(optional=True)
    with pytest.raises(UnknownNameError, match="the next training replaces"):
        model_kind(removed)

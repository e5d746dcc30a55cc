"""Names of the models that training fits, as the setting ``training.models`` has them."""

from __future__ import annotations

from kongming.learning.registry import model_kind
from kongming.records.errors import InputError, UnknownNameError


def model_names(text: str) -> tuple[str, ...] | None:
    """Parse names with commas between them; None, for all but the optional ones, of an empty text.

    Raises:
        InputError: commas alone.
        UnknownNameError: no such model.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if text.strip() and not names:
        raise InputError(
            "has no name.",
            field="training.models",
            value=text,
            allowed="names with commas between them, as LM,CART",
        )
    try:
        for name in names:
            model_kind(name)
    except UnknownNameError as error:
        raise error.at("training.models") from None
    return names or None

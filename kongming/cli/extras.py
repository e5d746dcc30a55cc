"""Optional parts of the installation: what is missing is said with the way to install it."""

from __future__ import annotations

import importlib
from types import ModuleType

from kongming.records.errors import MissingExtraError

EXTRAS = {
    "cramjam": "spark",
    "deap": "predict",
    "lightgbm": "predict",
    "matplotlib": "plots",
    "msgspec": "spark",
    "numpy": "predict",
    "pyarrow": "predict",
    "scipy": "predict",
    "sklearn": "predict",
    "google": "wire",
    "grpc": "wire",
    "jinja2": "plots",
    "zstandard": "spark",
}
"""Top-level modules that ``pip install kongming`` alone does not bring, and their extra."""


def require(what: str, extra: str, module: str) -> ModuleType:
    """Import ``module`` for ``what`` (the subject of the error: "Training", "kongming export").

    Raises:
        MissingExtraError: it is not installed; names the extra that brings it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise MissingExtraError(what, extra, error.name) from error


def missing_extra(what: str, error: ModuleNotFoundError) -> MissingExtraError | None:
    """The error for an import that failed inside a command; None when it is no optional part."""
    name = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(name)
    return None if extra is None else MissingExtraError(what, extra, name)

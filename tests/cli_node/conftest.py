"""The made-up ``kongming-microbench`` of tests/probes, and folders of its own for each test."""

from tests.probes.conftest import fake, own_folders

__all__ = ["fake", "own_folders"]

"""Tests of this project's content measure in this process as tests of the engine do."""

from tests.engine.conftest import _environment_is_restored  # noqa: F401

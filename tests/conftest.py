"""Shared fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

import cupola  # noqa: F401  (sets XLA's flags before JAX starts)


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision within one test."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)

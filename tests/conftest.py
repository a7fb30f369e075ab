"""Shared fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

import cupola  # noqa: F401  (sets XLA's flags before JAX starts)


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Many tests compile the same functions: once is enough."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("jax")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision within one test."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)

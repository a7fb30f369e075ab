"""Shared fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from cupola.cli import warm_up_cache


@pytest.fixture(scope="session", autouse=True)
def compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Many tests and their child processes compile the same functions: once is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        warm_up_cache()
        yield


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision within one test."""
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)

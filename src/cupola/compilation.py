"""JAX at its start: whether it finds a device; compiled functions, kept between processes."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from cupola.errors import CupolaError


def warm_up_cache() -> None:
    """Start JAX, and keep compiled functions between runs, so that a second start is quick."""
    import jax

    try:
        jax.devices()
    except RuntimeError as error:  # JAX_PLATFORMS names something that is not there
        raise CupolaError(f"JAX does not start: {error}") from None
    cache = cache_folder()
    if cache is None:
        return
    jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX does not write entries atomically. Who reads one that another process is still writing
    # compiles by itself: nothing that a user should be warned of.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")


def cache_folder() -> Path | None:
    """Of compiled functions; None for a user without a home.

    Its contents are run. So it never depends on the working directory, which may be a stranger's.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not named.is_absolute():
        try:
            named = Path.home() / ".cache"
        except RuntimeError:
            return None
    return named / "cupola" / "jax" if named.is_absolute() else None

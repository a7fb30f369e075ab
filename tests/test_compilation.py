"""Where compiled functions are kept."""

from pathlib import Path

import pytest

from cupola.compilation import cache_folder


@pytest.mark.parametrize(
    ("named", "home", "folder"),
    [
        ("/cache", "/home/me", "/cache"),
        (None, "/home/me", "/home/me/.cache"),
        ("", "/home/me", "/home/me/.cache"),
        (".", "/home/me", "/home/me/.cache"),
        ("cache", "/home/me", "/home/me/.cache"),
        (None, ".", None),
    ],
)
def test_compiled_functions_never_come_from_the_working_directory(monkeypatch, named, home, folder):
    """With an empty XDG_CACHE_HOME they did: those of a stranger would have been run."""
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if named is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", named)
    assert cache_folder() == (folder and Path(folder, "cupola", "jax"))


def test_a_user_without_a_home_has_no_cache(monkeypatch):
    """As in a container with a number for a user; it was a traceback of every command."""

    def home(cls):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() is None
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_folder() == Path("/cache/cupola/jax")

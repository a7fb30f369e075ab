"""What `eval` and `render` share: a film that shows its progress, and its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cupola.commands.writing import check_new, write_new
from cupola.errors import CupolaError

if TYPE_CHECKING:
    from cupola.video.film import Film


def new_film(
    path: Path,
    force: bool,
    limits: Mapping[str, float],
    gamma: float,
    *,
    episodes: int = 4,
    size: tuple[int, int] | None = None,
) -> Film:
    """A film for this file, which is refused now if it cannot be written later."""
    from cupola.video.encode import check_video
    from cupola.video.film import Film

    check_video(path)
    check_new(path, force)
    return Film(limits, gamma, episodes, size)


def write_film(film: Film, path: Path) -> None:
    from cupola.video.encode import encode

    if not film.frames:
        raise CupolaError("there was nothing to film.")
    data = encode(film, path.suffix)
    write_new(path, data)
    print(f"{path}: {film.end:.1f} s in real time, {len(data) / 1000:,.0f} kB")

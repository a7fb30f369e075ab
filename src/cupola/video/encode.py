"""Films as files: GIF and PNG by Pillow, MP4 by ffmpeg (pip install 'cupola[video]')."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cupola.errors import CupolaError
from cupola.video.film import Film

GIF_BYTES = 2_000_000
"""A GIF that is larger is made again with half of its frames, then smaller."""
_SLOWEST = 6.0
"""Frames a second below which a GIF becomes smaller instead."""
SUFFIXES = (".gif", ".mp4")


def check_video(path: Path) -> None:
    """Refuse what cannot be written, before the work begins."""
    if path.suffix not in SUFFIXES:
        raise CupolaError(f"a video is a file .gif or .mp4: not {path}.")
    if path.suffix == ".mp4":
        _ffmpeg()


def encode(film: Film, suffix: str) -> bytes:
    """The file of a film."""
    return to_gif(film) if suffix == ".gif" else to_mp4(film)


def to_png(picture: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", optimize=True)
    return file.getvalue()


def to_gif(film: Film) -> bytes:
    """A GIF that repeats for ever, of about `GIF_BYTES` at most."""
    frames, times, scale = film.frames, film.times, 1.0
    data = _gif(frames, times, film.end, scale)
    while len(data) > GIF_BYTES and scale > 0.4:
        if len(frames) / film.end > 2 * _SLOWEST:
            # The last frame stays: it says how the episodes ended.
            kept = [*range(0, len(frames) - 1, 2), len(frames) - 1]
            frames, times = [frames[i] for i in kept], [times[i] for i in kept]
        else:
            scale *= 0.8
        data = _gif(frames, times, film.end, scale)
    return data


def _gif(frames: list[np.ndarray], times: list[float], end: float, scale: float) -> bytes:
    from PIL import Image

    size = (round(frames[0].shape[1] * scale), round(frames[0].shape[0] * scale))
    few = np.concatenate([frames[i] for i in np.linspace(0, len(frames) - 1, 8).astype(int)])
    # One palette for all frames: colours do not flicker, and what stands still costs nothing.
    palette = Image.fromarray(few).quantize(96, Image.Quantize.MEDIANCUT)
    images = []
    for frame in frames:
        image = Image.fromarray(frame)
        image = image if scale == 1.0 else image.resize(size, Image.Resampling.LANCZOS)
        images.append(image.quantize(palette=palette, dither=Image.Dither.NONE))
    # Whole hundredths of a second, as the format has them, whose sum is the real time.
    ticks = np.round(100 * np.array([*times, end])).astype(int)
    durations = np.maximum(10 * np.diff(ticks), 20).tolist()
    file = io.BytesIO()
    images[0].save(
        file,
        "GIF",
        save_all=True,
        append_images=images[1:],
        duration=durations,
        loop=0,
        optimize=True,  # what stands still becomes transparent
    )
    return file.getvalue()


def to_mp4(film: Film) -> bytes:
    """An H.264 video that most programs and browsers play."""
    ffmpeg = _ffmpeg()
    gaps = np.diff([*film.times, film.end])
    rate = 1 / float(np.median(gaps)) if len(gaps) > 1 else 1 / film.end
    height, width = film.frames[0].shape[:2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        writer = ffmpeg.write_frames(
            str(path), (width, height), fps=rate, macro_block_size=2, ffmpeg_log_level="error"
        )
        writer.send(None)
        try:
            for frame, gap in zip(film.frames, gaps, strict=True):
                for _ in range(max(1, round(gap * rate))):
                    writer.send(np.ascontiguousarray(frame))
        finally:
            writer.close()
        return path.read_bytes()


def _ffmpeg() -> Any:
    # Otherwise it forks to shield ffmpeg from Ctrl-C, and JAX warns of a deadlock.
    os.environ.setdefault("IMAGEIO_FFMPEG_NO_PREVENT_SIGINT", "1")
    try:
        import imageio_ffmpeg
    except ImportError:
        raise CupolaError(
            "a file .mp4 needs the package imageio-ffmpeg: pip install 'cupola[video]', or write a"
            " file .gif."
        ) from None
    return imageio_ffmpeg

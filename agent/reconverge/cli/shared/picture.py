"""Draws a picture of a run: the cost that each policy admitted in every window, the limit and the declared bound."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol

from reconverge.errors import InvalidSetting, MissingExtra

COLOURS: Final = ("#1f6f8b", "#d1495b", "#6a994e", "#8d6a9f", "#c98b2b")
INK: Final = "#333333"
SHADE: Final = "#f3e9d2"
DOTS_PER_INCH: Final = 110


class Picture(Protocol):
    """The interface of a picture that can be saved."""

    @property
    def title(self) -> str:
        """Returns the title of the picture."""
        ...

    def draw_on(self, figure: Any) -> None:
        """Draws the picture on a figure of matplotlib."""
        ...


@dataclass(frozen=True, slots=True)
class Series:
    """The cost that one policy admitted in each window."""

    policy: str
    admitted: Sequence[int]
    bound: float | None
    """The most that a window may admit by the declared bound; None if no bound is declared."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of the requests and admissions of one key over time."""

    title: str
    moments_s: Sequence[float]
    """The beginning of each window, in seconds after the start."""
    window_s: float
    asked: Sequence[int]
    quota: int
    series: Sequence[Series]
    cuts: Sequence[tuple[float, float, str]]
    """The beginning and end of each outage, in seconds after the start, and its label."""

    def draw_on(self, figure: Any) -> None:
        axes = figure.add_subplot()
        for begin_s, end_s, label in self.cuts:
            axes.axvspan(begin_s, end_s, color=SHADE, zorder=0)
            middle_s = (begin_s + end_s) / 2
            axes.text(middle_s, 0.985, label, ha="center", va="top", color=INK, transform=axes.get_xaxis_transform())
        self._draw(axes, self.asked, color="#bbbbbb", linewidth=1, label="asked for")
        for each, colour in zip(self.series, COLOURS, strict=False):
            label = f"admitted by {each.policy}"
            self._draw(axes, each.admitted, color=colour, linewidth=2, label=label)
            if each.bound is not None:
                label = f"declared bound of {each.policy}"
                axes.axhline(each.bound, color=colour, linestyle=":", linewidth=1.5, label=label)
        axes.axhline(self.quota, color=INK, linestyle="--", linewidth=1.2, label="limit")
        axes.set_xlabel("seconds after the start")
        axes.set_ylabel(f"requests per window of {self.window_s:g} s")
        dress(axes, self.title)

    def _draw(self, axes: Any, values: Sequence[int], **style: Any) -> None:
        """Draws `values`, one for each window, as a line of steps that ends with the last window."""
        if values:
            end_s = self.moments_s[-1] + self.window_s
            axes.step([*self.moments_s, end_s], [*values, values[-1]], where="post", **style)


def check_available(path: Path | None = None) -> None:
    """Raises MissingExtra if matplotlib is not installed, and InvalidSetting if `path` cannot become a picture."""
    if path is not None and path.suffix not in (".png", ".html"):
        raise InvalidSetting("plot", str(path), f"must end in .png or .html, not in {path.suffix!r}")
    if path is not None and not path.parent.is_dir():
        raise InvalidSetting("plot", str(path), "cannot be written: there is no such directory; make it first")
    if find_spec("matplotlib") is None:
        raise MissingExtra("a picture", "matplotlib", "plot")


def save(
    picture: Picture, path: Path, *, heading: str, sentences: Sequence[str], table: Sequence[Sequence[str]]
) -> None:
    """Draws a picture into FILE.png, or into FILE.html with the heading, the sentences and the table.

    Raises InvalidSetting if the file cannot be written.
    """
    try:
        if path.suffix == ".png":
            save_png(picture, path)
        else:
            save_page(picture, path, heading=heading, sentences=sentences, table=table)
    except OSError as error:
        raise InvalidSetting("plot", str(path), f"cannot be written: {error.strerror}; choose another path") from None


def save_png(picture: Picture, path: Path) -> None:
    """Draws the picture into a PNG file. Raises OSError."""
    path.write_bytes(_drawn(picture, "png"))


def save_page(
    picture: Picture, path: Path, *, heading: str, sentences: Sequence[str], table: Sequence[Sequence[str]]
) -> None:
    """Writes an HTML page that needs no other file: the picture, sentences about it, and a table. Raises OSError."""
    image = base64.b64encode(_drawn(picture, "svg")).decode()
    head, *rows = table
    header = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    said = "\n".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    path.write_text(
        f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(heading)}</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; color: {INK}; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }}
  img {{ width: 100%; }}
  table {{ border-collapse: collapse; }}
  th, td {{ padding: .3rem .9rem; border-bottom: 1px solid #ddd; text-align: right; }}
  th:first-child, td:first-child {{ text-align: left; }}
</style>
<h1>{html.escape(heading)}</h1>
{said}
<img alt="{html.escape(picture.title)}" src="data:image/svg+xml;base64,{image}">
<table>
<thead><tr>{header}</tr></thead>
<tbody>
{body}
</tbody>
</table>
</html>
""",
        encoding="utf-8",
    )


def _drawn(picture: Picture, form: str) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(11, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    picture.draw_on(figure)
    drawn = io.BytesIO()
    figure.savefig(drawn, format=form, dpi=DOTS_PER_INCH)
    return drawn.getvalue()


def dress(axes: Any, title: str) -> None:
    """Gives a plot the title and the look that all plots share."""
    axes.set_title(title, loc="left", color=INK)
    if axes.get_yscale() != "log":
        axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)

"""What all pictures share: the figure with its data, colours, and axes with units."""

import io
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from llmsim.errors import InputError
from llmsim.units import format_bandwidth, format_duration, format_size

# Okabe and Ito 2008: told apart by people with any colour vision
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D31", "#7F7F7F", "#B8A200", "#5E3C99")
INK, FAINT = "#222222", "#B0B0B0"

STYLE: Any = {  # matplotlib types its keys one by one
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "hatch.linewidth": 0.4,
    "svg.hashsalt": "llmsim",  # else the ids in an SVG differ from run to run
    "svg.fonttype": "none",
}
_FORMATS_OF_FILES = ("png", "svg", "pdf")  # of all that matplotlib writes, those that need nothing else installed
_NO_DATE: Mapping[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}

P = ParamSpec("P")


class Picture(Figure):
    """A figure that carries its data. It belongs to no pyplot state, so it works without a display and in threads."""

    data: dict[str, Any]

    def __init__(self, width_in: float, height_in: float):
        super().__init__(figsize=(width_in, height_in), layout="constrained")
        FigureCanvasAgg(self)
        self.data = {}

    def save(self, path: str | Path, dpi: int = 150) -> None:
        """Write the picture as the suffix says (png, svg, pdf); equal pictures give equal bytes.

        Raises:
            InputError: an unknown suffix, or the file cannot be written.
        """
        suffix = Path(path).suffix.lstrip(".").lower()
        if suffix not in _FORMATS_OF_FILES:
            raise InputError(
                f"{suffix or 'no suffix'} is not a picture format",
                where=str(path),
                mend="name the file .png, .svg or .pdf",
            )
        try:
            with mpl.rc_context(STYLE):
                self.savefig(path, dpi=dpi, metadata=_NO_DATE.get(suffix))
        except OSError as error:
            raise InputError(f"cannot write the picture: {error.strerror}", where=str(path)) from error

    def _repr_png_(self) -> bytes:
        """What a notebook shows."""
        buffer = io.BytesIO()
        with mpl.rc_context(STYLE):
            self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def styled(function: Callable[P, Picture]) -> Callable[P, Picture]:
    """Draw in the package's style, whatever the caller's is, and leave that as it was."""

    @wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Picture:
        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(STYLE)
            return function(*args, **kwargs)

    return draw


def colour_of(names: "list[str] | tuple[str, ...]") -> dict[str, str]:
    """A colour for each name, in order; after ten they repeat."""
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}


def time_unit(longest_s: float) -> tuple[str, float]:
    """The unit, and its seconds, in which a time axis up to ``longest_s`` reads best."""
    return next((u for u in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)) if longest_s >= u[1]), ("ns", 1e-9))


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "s": format_duration,
    "bytes": format_size,
    "bytes/s": format_bandwidth,
    "%": lambda value: f"{value:+.0%}" if value else "0 %",
}


def label_axis(axes: Axes, which: str, text: str, unit: str = "", *, log: bool = False) -> None:
    """Name the x or y axis, and print its ticks in ``unit``: s, bytes, bytes/s, % (of 1) or "" for plain numbers."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    if log:
        scale, base = (axes.set_xscale, 2 if unit in ("bytes", "") else 10) if which == "x" else (axes.set_yscale, 10)
        scale("log", base=base)
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(text)
    write = _FORMATS.get(unit, lambda value: f"{value:g}")
    printed = FuncFormatter(lambda value, _: write(value))
    axis.set_major_formatter(printed)
    if log:
        low, high = axis.get_data_interval()
        axis.set_minor_formatter(printed if 0 < high < 12 * low else NullFormatter())

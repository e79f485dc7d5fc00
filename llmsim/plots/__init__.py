"""Pictures of timelines, clusters and comparisons. Each function returns a :class:`Picture`: a matplotlib figure that
carries what it shows as ``data``, shows itself in a notebook, and is saved with ``save``."""

from llmsim.plots.curves import curves, predicted_against_measured
from llmsim.plots.gantt import compare_gantt, gantt
from llmsim.plots.network import topology
from llmsim.plots.picture import Picture

__all__ = ["Picture", "compare_gantt", "curves", "gantt", "predicted_against_measured", "topology"]

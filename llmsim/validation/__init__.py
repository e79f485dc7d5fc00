"""Predictions beside measurements: records, how far they are apart, and reports of it."""

from llmsim.validation.records import Case, Pair, Point
from llmsim.validation.report import Overlay, Report
from llmsim.validation.statistics import Summary, by_group, summarize

__all__ = ["Case", "Overlay", "Pair", "Point", "Report", "Summary", "by_group", "summarize"]

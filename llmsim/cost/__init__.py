"""What operations cost: overheads and rates of a machine, and closed forms for whole collectives."""

from llmsim.cost.bounds import cluster_lower_bound_s, program_lower_bound_s
from llmsim.cost.closed_form import (
    CLOSED_FORMS,
    algbw_bytes_per_s,
    busbw_bytes_per_s,
    busbw_factor,
    closed_form_s,
    parameter_server_s,
)
from llmsim.cost.costs import Costs

__all__ = [
    "CLOSED_FORMS",
    "Costs",
    "algbw_bytes_per_s",
    "busbw_bytes_per_s",
    "busbw_factor",
    "closed_form_s",
    "cluster_lower_bound_s",
    "parameter_server_s",
    "program_lower_bound_s",
]

"""Run a program in simulated time."""

from typing import Literal

from llmsim.cluster.cluster import Cluster
from llmsim.cost.costs import Costs
from llmsim.engine.bound import BoundProgram, bind
from llmsim.errors import InputError
from llmsim.program.graph import SendMode
from llmsim.program.program import Program
from llmsim.timeline import Timeline

Engine = Literal["compiled", "simpy"]


def simulate(
    program: Program,
    cluster: Cluster,
    costs: Costs | None = None,
    *,
    engine: Engine = "compiled",
    placement: "tuple[int, ...] | None" = None,
    send_mode: SendMode = "eager",
) -> Timeline:
    """Predict when each operation of ``program`` runs on ``cluster``.

    ``costs`` defaults to an ideal machine, whose time is all on the wire; rank r runs on
    ``cluster.devices[placement[r]]``, in rank order by default. A send is ``"eager"`` or waits for its receiver
    (``"rendezvous"``). Both engines give the same times: ``"compiled"`` is fast, ``"simpy"`` is the readable reference.

    Raises:
        InputError: see :func:`llmsim.engine.bind`.
        ProgramError: the program deadlocks.
    """
    return run(bind(program, cluster, costs, placement=placement, send_mode=send_mode), engine=engine)


def run(bound: BoundProgram, *, engine: Engine = "compiled") -> Timeline:
    """Run a bound program."""
    if engine == "compiled":
        from llmsim.engine.compiled import run_compiled

        start_s, end_s = run_compiled(bound)
    elif engine == "simpy":
        from llmsim.engine.simpy_engine import run_simpy

        start_s, end_s = run_simpy(bound)
    else:
        raise InputError(f"{engine!r} is not an engine", mend="use 'compiled' or 'simpy'")
    return bound.program.timeline(start_s, end_s, engine=engine, cluster=bound.cluster_name, send_mode=bound.send_mode)

"""A profile and a report made by hand."""

from llmsim.cost.fit import fit_latency_bandwidth
from llmsim.cost.profile import Machine, Profile, Rate, Transport
from llmsim.timeline import Span, Timeline
from llmsim.validation import Case, Overlay, Pair, Point, Report

MACHINE = Machine(
    cpu="Some <CPU> & more", cores=2, memory_bytes=2**33, kernel="Linux 6", python="3.11.7", torch="2.13.0",
    date="2026-01-02T03:04:05+00:00",
)  # fmt: skip
ALONE = fit_latency_bandwidth(
    "one-way time of a message", {4: [1e-4, 1.1e-4, 2e-4], 1 << 20: [1e-3, 1.1e-3, 1.2e-3], 1 << 24: [1.7e-2]}
)
TRANSPORT = Transport(
    alpha_s=1.3e-4, cpu_s_per_message=5e-5, bandwidth_bytes_per_s=1e9, link_efficiency=0.98, cpu_s_per_byte=1e-9,
    cpu_s_per_packet=6e-6, fits=(ALONE,),
)  # fmt: skip
PROFILE = Profile(
    machine=MACHINE,
    backend="gloo",
    device="cpu",
    transports={"loopback": TRANSPORT, "netlab": TRANSPORT},
    reduce=(Rate(1 << 12, 4e9), Rate(1 << 20, 3e10), Rate(1 << 26, 8e9)),
    copy=(Rate(1 << 12, 4e9), Rate(1 << 26, 1e10)),
    matmul=(Rate(256, 9e10), Rate(512, 8e10), Rate(512, 1.2e11, "bfloat16")),
    memory_bandwidth_bytes_per_s=2e10,
    local_overhead_s=5e-6,
    transfers={"h2d pinned": (Rate(1 << 20, 5e10),)},
)


def case(world_size: int = 4, size_bytes: int = 1 << 20, algorithm: str = "ring", network: str = "star") -> Case:
    rate = None if network == "loopback" else 25e6
    return Case("all-reduce", algorithm, world_size, size_bytes, network, rate)


def timeline(stretch: float) -> Timeline:
    return Timeline.from_spans(
        [Span(r, s, "send", 0.1 * r * stretch, (0.1 * r + 0.3) * stretch) for r in range(3) for s in ("send", "recv")],
        program="all-reduce <ring>",
    )


def report() -> Report:
    points = (
        Point(case(), 0.070, (0.069, 0.071, 0.072)),
        Point(case(8), 0.080, (0.100,)),
        Point(case(2, algorithm="tree"), 0.050, (0.040, 0.041)),
        Point(case(network="loopback"), 0.003, (0.0031, 0.0029)),
    )
    return Report(
        title="A title with <angles> & more",
        profile=PROFILE,
        points=points,
        predicted_at="2026-01-02T03:05:00+00:00",
        measured_at="2026-01-02T03:09:00+00:00",
        pairs=(Pair(case(), "gloo", (0.07, 0.08, 0.09), (0.06, 0.09, 0.09)),),
        overlays=(Overlay(case(), timeline(1.0), timeline(1.1)),),
        settings={"warmup": 1},
        notes=("A note with <angles>.",),
    )

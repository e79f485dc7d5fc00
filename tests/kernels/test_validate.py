"""Validation: predictions come first, are of the cases alone, and runs are compared with them."""

import json
from dataclasses import replace

import pytest
from llmsim_kernels import cases, validate
from llmsim_kernels.netlab import netlab_unavailable
from llmsim_kernels.validate import Network, own_collective, predict, program_of

from llmsim.cost.fit import fit_latency_bandwidth
from llmsim.cost.profile import Machine, Profile, Rate, Transport
from llmsim.errors import InputError
from llmsim.program import ALGORITHMS, Kind, check
from llmsim.program import collective as build
from llmsim.validation import Case

FIT = fit_latency_bandwidth("t", {4: [1e-4], 1 << 20: [1e-3]})
TRANSPORT = Transport(
    alpha_s=1.3e-4, cpu_s_per_message=5e-5, bandwidth_bytes_per_s=1e9, link_efficiency=1.0, cpu_s_per_byte=0.0,
    cpu_s_per_packet=0.0, fits=(FIT,),
)  # fmt: skip
PROFILE = Profile(
    machine=Machine("cpu", 2, 2**30, "Linux", "3.11", "2", "2026-01-01T00:00:00+00:00"),
    backend="gloo",
    device="cpu",
    transports={"loopback": TRANSPORT, "netlab": TRANSPORT},
    reduce=(Rate(1 << 20, 1e12),),
    copy=(Rate(1 << 20, 1e12),),
    matmul=(Rate(256, 1e10),),
    memory_bandwidth_bytes_per_s=1e10,
    local_overhead_s=0.0,
    transfers={},
)
LOOPBACK = Case("all-reduce", "ring", 2, 1 << 16, "loopback")


@pytest.mark.timeout(100)
def test_a_small_validation(tmp_path, monkeypatch):
    """The predictions are on disk before the first run, and the report has every case with its repeats."""
    written = tmp_path / "some-predictions.json"
    runs = []
    real = validate.execute

    def watched(program, **options):
        assert written.exists()
        runs.append(program)
        return real(program, **options)

    monkeypatch.setattr(validate, "execute", watched)
    both = (LOOPBACK, replace(LOOPBACK, algorithm="tree", size_bytes=1 << 12))
    told = []
    report = validate.validate(
        PROFILE, both, pairs=(LOOPBACK,), directory=tmp_path, stem="some", repeats=2, progress=told.append
    )
    assert len(told) == 3
    assert len(runs) == 2 + 2 * 2
    predictions = {p["algorithm"]: p["predicted_s"] for p in json.loads(written.read_text())["predictions"]}
    assert predictions == {case.algorithm: predict(case, PROFILE).time_s for case in both}
    assert [(p.case, p.predicted_s) for p in report.points] == [(c, predictions[c.algorithm]) for c in both]
    assert all(len(point.repeats_s) == 2 for point in report.points)
    assert len(report.pairs[0].ours_s) == len(report.pairs[0].theirs_s) == 2
    overlay = report.overlays[0]
    rounds = next(point.rounds for point in report.points if point.case == overlay.case)
    assert len(overlay.predicted) == len(overlay.measured) == len(program_of(overlay.case, rounds))
    assert report.predicted_at <= report.measured_at
    assert {f.suffix for f in report.write(tmp_path, "some").values()} == {".json", ".png", ".html", ".md"}


@pytest.mark.timeout(100)
def test_a_point_in_a_netlab(tmp_path):
    reason = netlab_unavailable()
    if reason:
        pytest.skip(reason)
    case = Case("all-reduce", "ring", 2, 1 << 18, "star", 12.5e6)
    report = validate.validate(PROFILE, [case], directory=tmp_path, repeats=1)
    # On the wire alone it takes 256 KiB at 12.5 MB/s; a link gives no more than its rate and one bucket.
    wire_s = (1 << 18) / 12.5e6
    assert report.points[0].predicted_s > wire_s
    assert report.points[0].measured_s > 0.7 * wire_s


def test_a_network_is_known_without_a_lab():
    star = Network("star", 4, 25e6)
    costs = star.costs(PROFILE, 1 << 20)
    assert 0.9 < costs.protocol_efficiency < 1
    cluster = star.cluster()
    assert {link.bandwidth_bytes_per_s for link in cluster.links} == {25e6}
    assert all(0 < link.burst_bytes < 1e6 for link in cluster.links)
    assert len({cluster.host_of(device).name for device in cluster.devices}) == 1  # they share this machine's cores
    assert cluster.host_of(cluster.devices[0]).cores >= 1
    with pytest.raises(InputError, match="has no rate"):
        Network("star", 4, None).cluster()


def test_a_prediction_follows_from_the_case():
    """Ring all-reduce of N ranks: 2·(N − 1) messages of S/N in a row, each α and S/N at the rate less headers."""
    case = Case("all-reduce", "ring", 4, 1 << 24, "star", 25e6)
    costs = Network.of(case).costs(PROFILE, case.size_bytes)
    wire_s = 6 * (1 << 22) / (25e6 * costs.protocol_efficiency)
    # Buckets let some bytes of each step through at once, and α of each hides behind them.
    assert wire_s * 0.99 < predict(case, PROFILE, 1).time_s < wire_s + 6 * 1.3e-4


def test_calibration_and_cases_do_not_mix():
    """Whatever is calibrated is point-to-point; whatever is tried is a collective of several steps."""
    for case in (*cases.full_cases(), *cases.quick_cases(), *cases.loopback_cases(2), *cases.gpu_cases(2)):
        assert case.collective != "point-to-point"
        assert case.algorithm in ALGORITHMS[case.collective]
        assert own_collective(case).collectives[0].collective == case.collective


def test_there_are_enough_cases_and_each_is_one():
    full = cases.full_cases()
    assert len(full) >= 40
    assert len(set(full)) == len(full)
    assert {case.network for case in full} == {"star", "two-racks"}
    assert {case.world_size for case in full} == {2, 4, 8}
    assert min(case.size_bytes for case in full) == 64 << 10
    assert max(case.size_bytes for case in full) == 64 << 20
    rates = {case.bandwidth_bytes_per_s for case in full}
    assert (min(rates), max(rates)) == (100e6 / 8, 1e9 / 8)
    assert all(case.algorithm == "ring" and case.collective == "all-reduce" for case in cases.pair_cases(False))


def test_the_backends_own_collective_is_one_operation():
    case = Case("all-reduce", "ring", 4, 1 << 12, "star", 25e6)
    program = own_collective(case)
    assert (program.kind == Kind.COLLECTIVE).all()
    assert len(program) == 4
    assert program.collectives[0].count == build("all-reduce", "ring", 4, 1 << 10).contracts[0].count


def test_a_row_of_collectives_is_long_enough_to_be_timed():
    case = Case("all-reduce", "ring", 4, 1 << 16, "star", 125e6)
    made = predict(case, PROFILE)
    assert made.rounds > 1
    assert made.timeline.makespan_s == pytest.approx(0.1, rel=0.1)
    assert made.time_s * made.rounds == made.timeline.makespan_s
    assert len(program_of(case, made.rounds)) == made.rounds * len(program_of(case))
    assert predict(replace(case, size_bytes=1 << 25), PROFILE).rounds == 1


@pytest.mark.parametrize("case", [*cases.full_cases()[-12:], *cases.quick_cases()])
def test_programs_in_a_row_keep_their_promises(case):
    small = replace(case, size_bytes=1 << 10)
    for rounds in (1, 2):
        program = program_of(small, rounds)
        check(program)
        alone = build(case.collective, case.algorithm, case.world_size, 1 << 8)
        assert program.message_bytes == rounds * alone.message_bytes
        assert own_collective(small, rounds).messages == 0


def test_nothing_to_validate(tmp_path):
    with pytest.raises(InputError, match="no cases"):
        validate.validate(PROFILE, [], directory=tmp_path)
    with pytest.raises(InputError, match="was not calibrated"):
        validate.validate(replace(PROFILE, transports={}), [LOOPBACK], directory=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write the predictions"):
        validate.validate(PROFILE, [LOOPBACK], directory=tmp_path / "file")

"""Which device holds which rank: placements as tuples of indices into ``cluster.devices``."""

import difflib
import random
from collections.abc import Sequence
from itertools import zip_longest

from llmsim.cluster.cluster import Cluster
from llmsim.errors import InputError

POLICIES = ("linear", "round-robin", "random")


def place(
    cluster: Cluster, ranks: int, policy: "str | Sequence[str | int]" = "linear", *, seed: int = 0
) -> tuple[int, ...]:
    """The device of each rank.

    Args:
        policy: ``linear`` (rank r on the r-th device, so hosts are filled one after the other), ``round-robin`` (ranks
            are dealt out to the hosts in turn), ``random`` (by ``seed``), a list of devices (names or indices, one for
            each rank), or such a list as text: ``"d0,d4,d1"``.

    Raises:
        InputError: more ranks than devices, an unknown policy or device, or a device that is named twice.
    """
    where = f"placement on {cluster.name}"
    if ranks < 1:
        raise InputError(f"{ranks} ranks", where=where, mend="place 1 or more")
    if not isinstance(policy, str):
        return explicit(cluster, ranks, policy)
    if policy not in POLICIES:
        names = [name.strip() for name in policy.split(",")]
        if len(names) == 1 and names[0] not in cluster.graph:
            close = difflib.get_close_matches(policy, POLICIES, n=1)
            mend = f"did you mean {close[0]}?" if close else f"choose among {', '.join(POLICIES)} or list the devices"
            raise InputError(f"there is no placement {policy!r}", where=where, mend=mend)
        return explicit(cluster, ranks, names)
    count = len(cluster.devices)
    if ranks > count:
        raise InputError(f"{ranks} ranks do not fit on {count} devices", where=where, mend="take a larger cluster")
    if policy == "linear":
        return tuple(range(ranks))
    if policy == "random":
        return tuple(random.Random(seed).sample(range(count), ranks))
    return _round_robin(cluster)[:ranks]


def _round_robin(cluster: Cluster) -> tuple[int, ...]:
    by_host: dict[str, list[int]] = {}
    for index, device in enumerate(cluster.devices):
        by_host.setdefault(cluster.host_of(device).name, []).append(index)
    turns = zip_longest(*by_host.values())
    return tuple(index for turn in turns for index in turn if index is not None)


def explicit(cluster: Cluster, ranks: int, devices: Sequence[str | int]) -> tuple[int, ...]:
    """A placement by names or indices of devices, one for each rank."""
    where = f"placement on {cluster.name}"
    if len(devices) != ranks:
        raise InputError(f"{len(devices)} devices are listed for {ranks} ranks", where=where, mend="list one for each")
    index = {name: i for i, name in enumerate(cluster.devices)}
    placement: list[int] = []
    for rank, device in enumerate(devices):
        found = index.get(device) if isinstance(device, str) else device
        if found is None or isinstance(found, bool) or not 0 <= found < len(cluster.devices):
            close = difflib.get_close_matches(str(device), index, n=3)
            mend = f"did you mean {' or '.join(close)}?" if close else None
            raise InputError(f"there is no device {device!r}", where=f"{where}: rank {rank}", mend=mend)
        if found in placement:
            raise InputError(
                f"{cluster.devices[found]} already holds rank {placement.index(found)}",
                where=f"{where}: rank {rank}",
                mend="give each rank a device of its own",
            )
        placement.append(found)
    return tuple(placement)

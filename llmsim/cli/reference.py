"""Commands that look things up: ``explain`` and ``devices``."""

from dataclasses import asdict
from typing import Annotated

import typer

from llmsim.cli.output import Json, console, print_json, table
from llmsim.units import format_bandwidth, format_duration, format_flop_rate


def explain(
    term: Annotated[list[str] | None, typer.Argument(help="English or Chinese name; without one, list all.")] = None,
    as_json: Json = False,
) -> None:
    """What a term means, its formula, and what holds of what people say about it."""
    from llmsim.catalog import glossary

    if term:
        entry = glossary.explain(" ".join(term))
        if as_json:
            print_json(asdict(entry))
        else:
            print(entry)
        return
    entries = glossary.terms()
    if as_json:
        print_json([asdict(entry) for entry in entries])
        return
    rows = [(entry.number, entry.name, ", ".join(entry.zh), ", ".join(entry.en[1:4])) for entry in entries]
    console().print(table(("", "term", "中文", "also"), rows, left=range(4)))


def devices(
    name: Annotated[str | None, typer.Argument(help="A device or link; without one, list all.")] = None,
    as_json: Json = False,
) -> None:
    """Devices, links and clusters of the catalog, each figure with its source."""
    from llmsim import catalog

    if name is not None:
        entry = _entry(name)
        if as_json:
            print_json(asdict(entry))
            return
        rows = [(key, f.text, f.confidence, f.source, f.note) for key, f in entry.figures.items()]
        out = console()
        out.print(f"{entry.name}: {entry.description}", soft_wrap=True)
        out.print(table(("figure", "value", "from", "source", "note"), rows, left=range(5)))
        return
    names = catalog.names()
    all_devices = [catalog.device(n) for n in names["devices"]]
    all_links = [catalog.link(n) for n in names["links"]]
    clusters = {n: catalog.describe_cluster(n) for n in names["clusters"]}
    if as_json:
        print_json(
            {"devices": [asdict(d) for d in all_devices], "links": [asdict(x) for x in all_links], "clusters": clusters}
        )
        return
    out = console()
    rows_of_devices = [
        (
            d.name,
            d.figures["memory"].text,
            format_bandwidth(d.memory_bandwidth_bytes_per_s),
            format_flop_rate(peak)
            if (peak := d.peaks_flop_per_s.get("bf16") or d.peaks_flop_per_s.get("fp16"))
            else "-",
            format_bandwidth(scale_up) if (scale_up := d.scale_up_bandwidth_bytes_per_s) else "-",
        )
        for d in all_devices
    ]
    out.print(table(("device", "memory", "memory bandwidth", "16-bit peak", "links, one direction"), rows_of_devices))
    out.print()
    rows_of_links = [
        (
            x.name,
            format_bandwidth(x.bandwidth_bytes_per_s),
            format_duration(x.latency_s) if x.latency_s is not None else "-",
            x.per,
            x.description,
        )
        for x in all_links
    ]
    out.print(table(("link", "one direction", "latency", "per", ""), rows_of_links, left=(0, 3, 4)))
    out.print()
    out.print(table(("cluster", ""), clusters.items(), left=range(2)))


def _entry(name: str):
    from llmsim import catalog
    from llmsim.catalog.load import pick

    of_kind = {"devices": catalog.device, "links": catalog.link}
    known = {n: find for kind, find in of_kind.items() for n in catalog.names()[kind]}
    return pick(known, name, "device or link")(name)

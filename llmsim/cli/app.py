"""The ``llmsim`` command with all its groups."""

from typing import Annotated

import typer

from llmsim.cli import collective, figures, hardware, networks, reference

app = typer.Typer(
    name="llmsim",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    help="Predict how LLM training and serving systems behave, run the same algorithms for real, compare the two.",
)

PREDICT, REAL, LOOK = "Predict", "Run for real", "Look up"
app.command("collective", rich_help_panel=PREDICT)(collective.collective)
app.command("flows", rich_help_panel=PREDICT)(networks.flows)
app.command("topology", rich_help_panel=PREDICT)(networks.topology)
app.command("calibrate", rich_help_panel=REAL, **hardware.PASS_ON)(hardware.calibrate)
app.command("validate", rich_help_panel=REAL, **hardware.PASS_ON)(hardware.validate)
app.command("netlab", rich_help_panel=REAL, **hardware.PASS_ON)(hardware.netlab)
app.command("demo", rich_help_panel=REAL, **hardware.PASS_ON)(hardware.demo)
app.command("explain", rich_help_panel=LOOK)(reference.explain)
app.command("devices", rich_help_panel=LOOK)(reference.devices)
app.command("figures", rich_help_panel=LOOK)(figures.figures)


@app.callback()
def llmsim(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(installed("llmsim"))
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())

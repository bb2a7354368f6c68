"""`penstock cuts`: list where gates can be placed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.arguments import load_model, parse_example
from penstock.cli.show import AsJson, show
from penstock.gating import surgery
from penstock.gating.tables import cuts_table


def cuts_command(
    model: Annotated[str, typer.Argument(help="The network, as package.module:function.", show_default=False)],
    shape: Annotated[
        str, typer.Option(help="Shape of one sample, such as 1x28x28.", metavar="SHAPE", show_default=False)
    ],
    dtype: Annotated[str, typer.Option(help="Its torch type; int64 for token ids.", metavar="TYPE")] = "float32",
    as_json: AsJson = False,
) -> None:
    """List the legal cuts of a network: the places where exactly one tensor crosses.

    Example: `penstock cuts penstock.models.resnet:resnet8 --shape 1x28x28`
    """
    found = surgery.cuts(load_model(model), parse_example(shape, dtype))
    show(as_json, [asdict(cut) for cut in found], cuts_table(found))

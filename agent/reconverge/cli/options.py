"""Options that several commands have, so that each is said in the same words everywhere."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from reconverge.limit.limit import ALGORITHMS, REFILLS

AlgorithmOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=f"{', '.join(ALGORITHMS)}. By default the one that an agent takes for such a limit.", metavar="NAME"
    ),
]
SlicesOption: TypeAlias = Annotated[
    int | None, typer.Option(help="Into how many parts sliding-slices divides the window.", metavar="N")
]
InitialOption: TypeAlias = Annotated[
    int | None, typer.Option(help="What a new key may use of a bucket; by default all of it.", metavar="N")
]
RefillOption: TypeAlias = Annotated[
    str, typer.Option(help=f"How a bucket gets its quota back: {', '.join(REFILLS)}.", metavar="NAME")
]
ProcessesOption: TypeAlias = Annotated[
    int, typer.Option(help="On how many processes to simulate.", metavar="N", min=1, show_default="one for each core")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]

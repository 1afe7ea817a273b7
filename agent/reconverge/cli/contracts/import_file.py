"""The command `reconverge contracts import`: converts a file of another format to contracts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from reconverge.errors import InvalidSetting, asked

if TYPE_CHECKING:
    from reconverge.integrations.contracts.importing.imported import Imported

ENVOY: Final = "envoy"
XML: Final = "xml"
FORMATS: Final = (ENVOY, XML)


def import_file(
    file: Annotated[
        Path, typer.Argument(help="A descriptor file of Envoy's rate limit service, or XML.", metavar="FILE")
    ],
    source: Annotated[str, typer.Option("--from", help="envoy or xml.", metavar="FORMAT")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="A new YAML, JSON or TOML file; by default YAML is printed.", metavar="FILE"),
    ] = None,
    customer: Annotated[
        str | None, typer.Option(help="Of an Envoy file: the key whose values are customers.", metavar="KEY")
    ] = None,
) -> None:
    """Convert a file of another format to contracts, and print remarks about what differs from the file."""
    from reconverge.integrations.contracts.rule_files import written_contracts  # noqa: PLC0415  # needs an extra

    language = "yaml" if out is None else _language_of(out)
    made = _imported(file, source, customer)
    text = written_contracts(made.document, language)
    if out is None:
        typer.echo(text, nl=False)
    else:
        _write(out, text)
    for remark in made.remarks:
        typer.echo(remark, err=True)


def _imported(file: Path, source: str, customer: str | None) -> Imported:
    if source == ENVOY:
        from reconverge.integrations.config.positions import Source  # noqa: PLC0415  # needs an extra
        from reconverge.integrations.contracts.importing.envoy import imported_from_envoy  # noqa: PLC0415  # likewise

        return imported_from_envoy(Source(file), customer)
    if source == XML:
        from reconverge.integrations.contracts.importing.refill_policies import imported_from_xml  # noqa: PLC0415  # likewise

        if customer is not None:
            raise InvalidSetting(
                "customer",
                customer,
                f"goes with --from {ENVOY}; an XML file names its customer itself, so leave it out",
            )
        return imported_from_xml(file)
    raise InvalidSetting("from", source, f"is an unknown format; known: {', '.join(FORMATS)}{asked(source, FORMATS)}")


def _language_of(out: Path) -> str:
    """Returns the language to write to the file `out`, yaml, json or toml, by its extension. Raises InvalidSetting."""
    languages = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
    if out.suffix not in languages:
        raise InvalidSetting(
            "out", str(out), f"ends in none of {', '.join(languages)}; give the file one of these endings"
        )
    return languages[out.suffix]


def _write(out: Path, text: str) -> None:
    """Writes a new file. Raises InvalidSetting, also if the file exists: its contracts may be in use."""
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidSetting("out", str(out), "is there already; take another name, or remove it first") from None
    except OSError as error:
        raise InvalidSetting("out", str(out), f"cannot be written: {error}; choose another path") from None

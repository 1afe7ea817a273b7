"""Writes all results as one page for people: each scenario's claim, its picture, and the violations of the rivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from chaos.report.picture import colours, picture

STYLE: Final = """
:root { --ink: #1f2430; --soft: #667085; --rule: #e4e7ec; --ours: #2563eb; }
* { box-sizing: border-box; }
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #f7f8fa; }
main { max-width: 860px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 18px; margin: 0; }
h2 small { color: var(--soft); font-weight: 400; margin-left: 8px; }
p { margin: 6px 0; }
.soft { color: var(--soft); font-size: 13.5px; }
article { background: #fff; border: 1px solid var(--rule); border-radius: 10px; padding: 18px 22px; margin: 22px 0; }
nav { columns: 3; font-size: 13.5px; margin: 18px 0; }
nav a { color: inherit; display: block; text-decoration: none; }
.mark { float: right; padding: 1px 9px; border-radius: 99px; font-size: 12.5px; font-weight: 600; }
.good { background: #dcfce7; color: #166534; }
.bad { background: #fee2e2; color: #991b1b; }
svg { width: 100%; height: auto; margin: 8px 0 2px; font: 11.5px system-ui, sans-serif; }
.fault { fill: #fde68a; opacity: .55; }
.grid { stroke: #eef0f3; }
.axis { stroke: #98a2b3; }
.tick { fill: var(--soft); font-size: 10.5px; }
.ours { fill: var(--ours); opacity: .85; }
.rival { fill: none; stroke-width: 1.6; }
.limit { stroke: var(--ink); stroke-width: 1.2; }
.bound { stroke: #b91c1c; stroke-width: 1.2; stroke-dasharray: 5 3; }
.age { fill: none; stroke: #475467; stroke-width: 1.3; }
text.label { stroke: none; fill: var(--ink); }
text.bound { fill: #b91c1c; }
text.age { fill: #475467; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; margin-top: 8px; }
td, th { text-align: left; padding: 4px 10px 4px 0; border-top: 1px solid var(--rule); vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
.dot { display: inline-block; width: 9px; height: 9px; border-radius: 99px; margin-right: 7px; }
"""
HEAD: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Chaos: what went wrong, and what came of it</title>
<style>{style}</style>
</head>
<body><main>
<h1>What went wrong, and what came of it</h1>
"""
LEGEND: Final = (
    "Bars are what our fleet admitted in each window of the busiest key; coloured lines are what its rivals admitted, "
    "asked the same on the same network. Where something was wrong the ground is yellow. The red line is the most that "
    "is promised. Below: how old the oldest knowledge of any of our nodes was."
)


def page(results: Sequence[dict[str, Any]]) -> str:
    """Returns the page."""
    return "\n".join([HEAD.format(style=STYLE), *_summary(results), *map(_article, results), "</main></body></html>\n"])


def _summary(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    kept = sum(not result["ours"] for result in results)
    rivals = [(result, rival) for result in results for rival in result["rivals"]]
    caught = sum(rival["to_be_caught_at"] in rival["caught_at"] for _, rival in rivals)
    yield (
        f"<p>In {kept} of {len(results)} scenarios our fleet kept every promise. Its rivals, which do what is usually "
        f"done, should have been caught {len(rivals)} times, and were caught {caught} times.</p>"
    )
    for about in sorted({_about(result) for result in results}):
        yield f'<p class="soft">{escape(about)}</p>'
    yield f'<p class="soft">{LEGEND}</p>'
    links = "".join(f'<a href="#{result["scenario"]}">{_mark(result)} {result["scenario"]}</a>' for result in results)
    yield f"<nav>{links}</nav>"


def _mark(result: dict[str, Any]) -> str:
    return "✓" if result["passed"] else "✗"


def _about(result: dict[str, Any]) -> str:
    changed = " with changes" if result["changed"] else ""
    return (
        f"Commit {result['commit']}{changed}, {result['date'][:10]}, {result['processors']} processors, "
        f"Python {result['python']}, Redis {result['redis']}."
    )


def _article(result: dict[str, Any]) -> str:
    mark = '<span class="mark good">kept</span>' if not result["ours"] else '<span class="mark bad">broken</span>'
    return "\n".join(
        [
            f'<article id="{result["scenario"]}">{mark}',
            f"<h2>{result['scenario']}<small>no. {result['number']}</small></h2>",
            f"<p>{escape(result['claim'])}</p>",
            picture(result),
            f'<p class="soft">{escape(_setting(result))}</p>',
            "<table>",
            *_rows(result),
            "</table></article>",
        ]
    )


def _setting(result: dict[str, Any]) -> str:
    ours = result["figures"]["ours"]
    fleet = f"{result['nodes']} nodes {_where(result)}, {result['policy']}, {result['limit']}"
    parts = [f"{fleet}, an exchange every {result['interval_s']:g} s, seed {result['seed']}"]
    parts.append(f"{ours['decisions']} decisions")
    if result["beyond_why"]:
        parts.append(f"excluded from the promises: {result['beyond_why']}")
    return "; ".join(parts) + "."


def _where(result: dict[str, Any]) -> str:
    where = {
        "sentinel": "on a Redis that Sentinels watch",
        "cluster": "on a cluster of three masters",
        "mqtt": "at a broker of MQTT",
    }.get(result.get("deployment", ""), "on a Redis")
    return f"{where}{', with TLS and few rights' if result.get('guarded') else ''}"


def _rows(result: dict[str, Any]) -> Iterator[str]:
    ours = result["figures"]["ours"]
    yield _row("ours", "var(--ours)", _our_words(result, ours))
    for rival in result["rivals"]:
        words = rival["words"][0] if rival["words"] else f"not caught at {rival['to_be_caught_at']}"
        kind = rival["to_be_caught_at"]
        yield _row(rival["name"], colours(result)[rival["name"]], f"<b>{escape(kind)}</b>: {escape(words)}")


def _row(name: str, colour: str, words: str) -> str:
    return f'<tr><th><span class="dot" style="background:{colour}"></span>{escape(name)}</th><td>{words}</td></tr>'


def _our_words(result: dict[str, Any], ours: dict[str, Any]) -> str:
    broken = "".join(f"<b>{escape(one['kind'])}: {escape(one['words'])}</b><br>" for one in result["ours"])
    least, most = ours["hub_total_least"], ours["hub_total_most"]
    admitted = f"{most}" if least == most else f"{least} to {most}"
    sentences = [
        f"{ours['over_admission_known']} above the limit at most, {result['over_admission_max']} promised",
        f"the hub knew of {ours['hub_total']}, and {admitted} was admitted",
    ]
    if ours["heard_again_s"] is not None:
        promised_s = result["reconverges_in_s"]
        sentences.append(
            f"all had heard of each other {ours['heard_again_s']:.2f} s after, {promised_s:.1f} s promised"
        )
    good, bad = ours["decisions_good"], ours["decisions_bad"]
    if good and bad:
        sentences.append(
            f"half of the decisions took less than {good['p50_us']:.0f} µs and 99 % less than {good['p99_us']:.0f} "
            f"while all was well, {bad['p50_us']:.0f} and {bad['p99_us']:.0f} while it was not"
        )
    for name, ages in ours.get("other_shards", {}).items():
        sentences.append(f"while {name}, of other shards at most {ages['max']} intervals old was what was known")
    return broken + "; ".join(sentences) + "."

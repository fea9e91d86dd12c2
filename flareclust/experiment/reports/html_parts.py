"""Parts of a page that stands alone: elements whose texts are escaped, tables, and the style sheet."""

from collections.abc import Iterable, Sequence
from html import escape

from flareclust._foundation.display import printable


class Html(str):
    """Text that is markup already; every other text is escaped."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return a value as markup that reads as the value."""
    return value if isinstance(value, Html) else Html(escape(printable(value)))


def tag(name: str, *content: object, **attributes: object) -> Html:
    """Return an element; underscores at the end of an attribute's name are left out, those within are dashes."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(value))}"' for key, value in attributes.items()
    )
    return Html(f"<{name}{pairs}>{''.join(map(text, content))}</{name}>")


def joined(parts: Iterable[object]) -> Html:
    """Return parts one after the other."""
    return Html("".join(map(text, parts)))


def section(title: str, *content: object) -> Html:
    """Return a part of the page under a heading; nothing where it has no content."""
    return tag("section", tag("h2", title), *content) if any(content) else Html("")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], **attributes: object) -> Html:
    """Return a table that scrolls by itself where it is wider than the page; cells that are no markup are texts."""
    first = tag("tr", *(one if _is_cell(one) else tag("th", one) for one in head))
    body = [tag("tr", *(one if _is_cell(one) else tag("td", one) for one in row)) for row in rows]
    return tag("div", tag("table", tag("thead", first), tag("tbody", *body), **attributes), class_="wide")


def _is_cell(one: object) -> bool:
    return isinstance(one, Html) and one.startswith(("<td", "<th"))


def page(title: str, *content: object) -> str:
    """Return a whole page, which loads nothing."""
    head = tag(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">"
        ),
        tag("title", title),
        Html(f"<style>{STYLE}</style>"),
    )
    return "<!doctype html>\n" + tag("html", head, tag("body", tag("main", *content)), lang="en") + "\n"


STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: #1a1a1a; font: 15px/1.45 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 25px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 30px 0 8px; padding-bottom: 3px; border-bottom: 1px solid #d5d5d5; }
p { margin: 4px 0 8px; overflow-wrap: anywhere; }
.soft { color: #555; font-size: 13px; }
.warnings { border-left: 5px solid #bd1f01; background: #fdf3f1; padding: 8px 14px; margin: 14px 0; }
.warnings ul, .card ul { margin: 4px 0; padding-left: 18px; }
.warnings li, .card li { overflow-wrap: anywhere; }
.fine { border-left: 5px solid #3a8a4d; background: #f1f8f2; padding: 8px 14px; margin: 14px 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(255px, 1fr)); gap: 12px; }
.card { border: 1px solid #d5d5d5; border-top-width: 6px; border-radius: 4px; padding: 8px 12px; break-inside: avoid; }
.card h3 { margin: 0 0 4px; font-size: 16px; }
.card .rule { background: #f5f5f5; padding: 3px 6px; font-size: 13px; overflow-wrap: anywhere; }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 3px 8px; text-align: left; vertical-align: middle; border-bottom: 1px solid #ececec; }
th { font-weight: 600; }
td:has(> .swatch), th:has(> .swatch), td:has(> .meter) { white-space: nowrap; }
td.text { min-width: 150px; } td.fill, th.fill { width: 100%; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
td.name, th.name { min-width: 96px; max-width: 220px; overflow-wrap: break-word; word-break: break-word; }
table.heat td.n, table.heat th.n { border: 1px solid #fff; min-width: 52px; }
table.dense { font-size: 11px; } table.dense td, table.dense th { padding: 2px 3px; }
table.dense.heat td.n, table.dense.heat th.n { min-width: 22px; text-align: center; }
.bar { display: flex; height: 18px; width: 100%; min-width: 160px; background: #eee; }
.bar span { display: block; height: 100%; overflow: hidden; color: #fff; font-size: 11px; line-height: 18px; text-align: center; }
.meter { display: inline-block; width: 60px; height: 8px; background: #e8e8e8; margin-right: 6px; }
.meter span { display: block; height: 100%; background: #555; }
.swatch { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border-radius: 2px; vertical-align: -1px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 12px; font-size: 12px; margin: 6px 0; }
.maps { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 8px; }
.whole { max-width: 720px; }
figure { margin: 0; break-inside: avoid; } figcaption { font-size: 12px; overflow-wrap: anywhere; }
svg { display: block; width: 100%; height: auto; border: 1px solid #e2e2e2; background: #fff; }
pre { background: #f5f5f5; padding: 8px 10px; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12.5px; }
@media (max-width: 500px) { main { padding: 14px 12px 30px; } h1 { font-size: 21px; } .maps { grid-template-columns: repeat(2, 1fr); } th.n { white-space: normal; }
  th, td { padding: 3px 4px; } td.text { min-width: 96px; } .bar.many span { font-size: 0; } table.heat .name { position: sticky; left: 0; background: #fff; } }
@media print {
  @page { size: A4; margin: 13mm; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  body { font-size: 11.5px; } main { max-width: none; padding: 0; }
  h1 { font-size: 20px; } h2 { font-size: 15px; margin-top: 18px; break-after: avoid; } h2 + p.soft { break-after: avoid; }
  .soft, .card .rule, .legend, figcaption { font-size: 10px; } .whole { max-width: 460px; }
  .wide { overflow: visible; } table { font-size: 10.5px; } table.dense { font-size: 7.5px; }
  table.dense.heat td.n, table.dense.heat th.n { min-width: 0; padding: 1px; }
  table.many { font-size: 8px; } table.many td, table.many th { padding: 1px 2px; } table.many .meter { width: 24px; margin-right: 2px; }
  table.many.heat td.n, table.many.heat th.n { min-width: 0; } table.many th.n { white-space: normal; }
  table.many td.name, table.many th.name { min-width: 48px; max-width: 90px; } table.many .swatch { display: block; margin-left: auto; }
  tr, .warnings { break-inside: avoid; } .cards { grid-template-columns: repeat(3, 1fr); } .maps { grid-template-columns: repeat(5, 1fr); }
}
"""

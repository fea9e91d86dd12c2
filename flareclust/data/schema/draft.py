"""A first schema, from one site's file: a text to be read, corrected and agreed, not a result.

It is written at a site and then leaves it, so it holds no value of a single row: ranges are widened to round numbers, and
values of a category that few rows have are left out.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import ceil, floor, log10
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flareclust._foundation.errors import UserError
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.data.cells import OLDEST, beyond_ages, code_cells, log_helps
from flareclust.data.schema.cells import WITH_UNIT, day_of, texts_of
from flareclust.data.schema.mapping import ISO_DATE, TableMapping
from flareclust.data.schema.outcome import is_known_later
from flareclust.data.tables import File, open_columns

#: A category's value is listed where so many rows have it.
LEAST_ROWS = 5

#: So many rows are looked at.
_MOST_ROWS = 200_000

#: A number with a point or a comma; a column is one of numbers where at least this share of its cells are.
_NUMBER, _MOSTLY = re.compile(r"[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?"), 0.8

#: What is said of a column of numbers with another decimal mark than that of the mapping.
_COMMAS = 'numbers with a decimal comma? Draft with --decimal , (decimal: "," in the mapping)'

#: Ids are of a column of which this share of the known cells differ, as a patient may have come twice.
_NEARLY_ALL = 0.95

#: Names of columns that number rows or patients, in lower case.
_ID_NAME = re.compile(
    r"(^|[^a-z])(id|nr|no|number|index|mrn|patient|case|fall)?(id|nr|no|number|index|mrn|patient|case)([^a-z]|$)"
)

#: What is said of a column of which a few large numbers would decide the clusters.
_SKEWED = "strongly skewed; transform: log?"

#: Text with more different values than this is no category, and so few integers may be the codes of one.
_MOST_CATEGORIES, _FEW_INTEGERS = 30, 10

#: Words for a cell without a value, beside the spellings that are read as such anyway.
_UNKNOWN = re.compile(
    r"k\. ?a\.|ka|keine angabe|n\.?d\.?|not (known|done)|unk(nown)?|unbekannt|missing|fehlt|#?n/a|n\.?a\.?|none|null|nan|\?|--?|\.\.?",
    re.IGNORECASE,
)

#: So written are the stages of a disease, with I, II, ... and a letter behind.
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")
_STAGE = re.compile(f"({'|'.join(_ROMAN)})([A-Ca-c]?)")

#: The largest of few integers that may stand for a missing cell.
_LAST_CODES = ("8", "9", "88", "99", "888", "999", "9999")

#: Forms of dates; the last one is no second one of a column, since it may be mixed up.
_DATES = (ISO_DATE, "%d.%m.%Y", "%d/%m/%Y", "%Y%m%d", "%m/%d/%Y")

#: Dates in a column of such a name, or of more than so many days, may be those of births.
_BIRTH, _LIVES = re.compile(r"birth|born|geburt|geboren|(^|[^a-z])(dob|geb)([^a-z]|$)", re.IGNORECASE), 20 * 365.25

_UNIT = re.compile(r"[\[(]\s*([^\])]+?)\s*[\])]\s*$|_(mm|cm|m|kg|g|mg|ml|l|years|days|bpm|mmhg)$", re.IGNORECASE)


class _Draft(NamedTuple):
    """A drafted schema: YAML with a comment behind what needs a look, how many rows were looked at, and how many repeat an id."""

    text: str
    rows: int
    repeated: int


def draft(table: str | Path | File, mapping: TableMapping | None = None) -> _Draft:
    """Return the draft of a schema for the columns of a csv, parquet, arrow or feather file, or of what a query gives.

    The mapping says encoding, decimal mark and spellings of missing cells. UserError where the file cannot be read, or none of
    its columns can be a feature.
    """
    file = table if isinstance(table, File) else File(Path(table), str(table))
    own = mapping or TableMapping()
    with open_columns(file, own.encoding) as source:
        names = source.names or ()
        if doubled := [name for name, times in Counter(names).items() if times > 1]:
            raise UserError(f"{file.place}: the column {doubled[0]!r} is there more than once; every name must differ")
        schema_names = {own.source(name): name for name in own.columns}
        spellings = [own.spellings(schema_names.get(name, name)) for name in names]
        columns: list[list[str | None]] = [[] for _ in names]
        for cells in source.cells(names):
            for column, part, missing in zip(columns, cells, spellings, strict=True):
                column += texts_of(part, missing).to_pylist()
            if len(columns[0]) >= _MOST_ROWS:
                break
    lines, has_id, repeated = [], False, 0
    for name, column, coded in zip(names, columns, spellings, strict=True):
        if not name:
            raise UserError(f"{file.place}: a column has no name; a table with a schema needs them all")
        cells = _without_codes(column, coded, own.decimal)
        settings, comment = _column(name, cells, own.decimal, may_be_id=not has_id)
        comment = "; ".join(filter(None, (comment, _may_be_outcome(name, settings, cells))))
        if settings["type"] == "id":
            known = [cell for cell in column if cell is not None]
            has_id, repeated = True, len(known) - len(set(known))
        inner = ", ".join(f"{key}: {_yaml(value)}" for key, value in settings.items())
        lines.append(f"  {_yaml(name)}: {{{inner}}}{f'  # {comment}' if comment else ''}")
    head = ["missing: refuse  # or drop-rows; a column can say otherwise"]
    head += ["duplicates: keep  # or first, last, refuse; of the rows with one id"] if repeated else []
    text = "\n".join((*head, "columns:", *lines, ""))
    if all("type: id" in line or "type: ignore" in line for line in lines):
        why = f"; {_COMMAS}" if _COMMAS in text else ""
        raise UserError(f"{file.place}: no column looks like a number or a category{why}")
    return _Draft(text, len(columns[0]), repeated)


def _column(name: str, cells: list[str | None], decimal: str, *, may_be_id: bool) -> tuple[dict[str, object], str]:
    """Return the settings of a column, and a comment on them."""
    known = [cell for cell in cells if cell is not None]
    if not known:
        return {"type": "ignore"}, "all cells are missing"
    gaps = len(cells) - len(known)
    comments = [f"{_percent(gaps / len(cells))} of the cells are missing"] if gaps else []
    known, unknown = _known_cells(known, decimal)
    if unknown:
        comments.append(unknown)
    different = Counter(known)
    unique = len(different) >= _NEARLY_ALL * len(known) and len(known) >= LEAST_ROWS
    numbers = _numbers(different, decimal)
    if numbers is None and not (unique and _ID_NAME.search(name.lower())) and (why := _nearly_numbers(different)):
        return {"type": "ignore"}, why
    if unique and (numbers is None or _counts_rows(name, numbers)) and not _date_forms(different):
        again = len(known) - len(different)
        said = f"{_percent(again / len(known))} of the rows have the id of another" if again else "all different"
        return {"type": "id" if may_be_id else "ignore"}, said
    if numbers is not None:
        times = np.array(list(different.values()))
        codes = code_cells(np.repeat(numbers, times))[np.cumsum(times) - 1]
        if codes.any():
            share = _percent(times[codes].sum() / len(cells))
            numbers, times = numbers[~codes], times[~codes]
            comments.append(
                f"{share} of the cells lie far from all others; list a code for missing ones under missing: in the mapping"
            )
        if old := int(times[beyond_ages(name, numbers)].sum()):
            comments.append(f"cells above {OLDEST} years: {old:,}; errors, or another unit? range: [0, {OLDEST}]")
        settings: dict[str, object] = {"type": "number"}
        if unit := _UNIT.search(name):
            settings["unit"] = unit[1] or unit[2]
        comments += [_SKEWED] if log_helps(np.repeat(numbers, times)) else []
        comments += [asked] if (asked := _may_be_codes(numbers, times)) else []
        return {**settings, "range": list(_widened(numbers))}, "; ".join(comments)
    if forms := _date_forms(different):
        days = [day for text in different if (day := day_of(text, forms)) is not None]
        age = "; of birth? type: date, as: age, reference: YYYY-MM-DD makes them years up to a day that all sites agree on, none of them after it"
        form = forms[0] if len(forms) == 1 else f"date: [{', '.join(map(_yaml, forms))}] in the mapping"
        birth = _BIRTH.search(name) or max(days) - min(days) > _LIVES
        return {"type": "ignore"}, f"dates, {form}; type date makes them a feature, in days{age if birth else ''}"
    if len(different) > _MOST_CATEGORIES:
        return {"type": "ignore"}, f"text with more than {_MOST_CATEGORIES} values; ids of several rows? type: id"
    listed = sorted(value for value, times in different.items() if times >= LEAST_ROWS)
    if not listed:
        return {"type": "ignore"}, f"no value has {LEAST_ROWS} rows"
    if rare := len(different) - len(listed):
        comments.append(f"{rare} rarer value{'s are' if rare > 1 else ' is'} not listed")
    if len(listed) > 1 and all(map(_STAGE.fullmatch, listed)) and min(map(_place_of_stage, listed))[0] < 2:
        comments.append("in the order of their numbers; type: category if they have no order")
        return {"type": "ordered", "values": sorted(listed, key=_place_of_stage)}, "; ".join(comments)
    if words := [json.dumps(value, ensure_ascii=False) for value in listed if _UNKNOWN.fullmatch(value)]:
        comments.append(f"{', '.join(words)} for missing cells? Then missing: [{', '.join(words)}] in the mapping")
    return {"type": "category", "values": listed}, "; ".join(comments)


def _place_of_stage(text: str) -> tuple[int, str]:
    """Return what a Roman number, with or without a letter behind it, is ordered by: IIA before IIB."""
    found = _STAGE.fullmatch(text)
    assert found is not None
    return _ROMAN.index(found[1]), found[2].lower()


def _without_codes(cells: list[str | None], spellings: frozenset[str], decimal: str) -> list[str | None]:
    """Return cells without those that are a number which stands for a missing one, however they write it: 99.0 for 99."""
    codes = {number for one in spellings if (number := _number(one, decimal)) is not None}
    if not codes:
        return cells
    coded = {cell for cell in {*cells} - {None} if _number(str(cell), decimal) in codes}
    return [None if cell in coded else cell for cell in cells]


def _known_cells(cells: list[str], decimal: str) -> tuple[list[str], str]:
    """Return the cells of a column without words for a missing one, and a comment, where all others are numbers, dates or stages.

    Otherwise the cells as they are.
    """
    words = Counter(cell for cell in cells if _UNKNOWN.fullmatch(cell))
    known = [cell for cell in cells if cell not in words]
    different = Counter(known)
    typed = _numbers(different, decimal) is not None or _date_forms(different) or all(map(_STAGE.fullmatch, different))
    if not words or not known or not typed:
        return cells, ""
    listed = ", ".join(json.dumps(word, ensure_ascii=False) for word in sorted(words))
    share = _percent(words.total() / len(cells))
    return known, f"{share} of the cells say that none is known: list them in the mapping, missing: [{listed}]"


def _may_be_outcome(name: str, settings: Mapping[str, object], cells: list[str | None]) -> str:
    """Return a question about a feature that is called like an outcome; "" for others. What it is, is for people to say."""
    if settings["type"] in ("id", "ignore") or not is_known_later(name):
        return ""
    known = _yaml(name)
    timed = f"{{time: {known}, event: ..., until: ...}}"
    if settings["type"] != "number":
        timed = f"{{time: ..., event: {known}=..., until: ...}}"
    elif {*cells} <= {"0", "1", "0.0", "1.0", None}:
        timed = f"{{time: ..., event: {known}, until: ...}}"
    return f"an outcome? Then name it below the columns, and it is no feature: outcome: {timed}, or {{value: {known}}}"


def _may_be_codes(numbers: FloatArray, times: IntArray) -> str:
    """Return a question about a column of different numbers (m,), each in so many cells (m,): may they be codes? "" for others."""
    numbers, places = np.unique(numbers, return_inverse=True)  # 2 and 2.0 are one
    times = np.bincount(places, times)
    few = len(numbers) <= min(_FEW_INTEGERS, times.sum() / LEAST_ROWS)
    if not few or (numbers != np.floor(numbers)).any():
        return ""
    listed = [f"{number:.12g}" for number in numbers[times >= LEAST_ROWS]]
    rarer = " and the rarer ones" if len(listed) < len(numbers) else ""
    apart = len(listed) > 1 and listed[-1] in _LAST_CODES and float(listed[-1]) - float(listed[-2]) > 1
    unknown = (
        f"; {listed[-1]} for missing cells? Then missing: {listed[-1]} for the column in the mapping" if apart else ""
    )
    return (
        f"{len(numbers)} integers only: a number, or codes? Then type: category, or ordered if they have an order, with "
        f"values: [{', '.join(listed)}]{rarer}{unknown}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"


def _number(text: str, decimal: str) -> float | None:
    found = _numbers(Counter((text,)), decimal)
    return None if found is None else float(found[0])


def _numbers(different: Counter[str], decimal: str) -> FloatArray | None:
    try:
        found = np.array([float(text.replace(",", ".") if decimal == "," else text) for text in different])
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _nearly_numbers(different: Counter[str]) -> str:
    """Return what keeps a column from being one of numbers, where most of its cells are; "" for other columns."""
    cells, numbers, units = different.total(), Counter[str](), Counter[str]()
    for text, times in different.items():
        found = re.fullmatch(WITH_UNIT, text)
        if found and text[found.end("number")] in "\N{NO-BREAK SPACE} %":  # 12A may be a room
            units[found["unit"]] += times
        if _NUMBER.fullmatch(text) or (found and found["unit"] in units):
            numbers[text] = times
    if numbers.total() < _MOSTLY * cells:
        return ""
    why = [_COMMAS] if any("," in text for text in numbers) else []
    if units:
        listed = ", ".join(f"{_yaml(unit)}: 1" for unit, times in units.most_common(3) if times >= LEAST_ROWS)
        share = _percent(units.total() / cells)
        why.append(
            f"{share} of the cells have a unit behind the number: type: number, and units: {{{listed}}} in the mapping, each with its factor to the schema's unit"
        )
    if odd := cells - numbers.total():
        share = _percent(odd / cells)
        why.append(f"{share} of the cells are no number; list spellings such as k.A. under missing: in the mapping")
    return "; ".join(why)


def _counts_rows(name: str, numbers: FloatArray) -> bool:
    """Return whether numbers that nearly all differ look like ids: integers, of a column called so or without gaps."""
    if (numbers != np.floor(numbers)).any():
        return False
    return bool(_ID_NAME.search(name.lower()) or (len(numbers) >= 20 and np.ptp(numbers) < 1.05 * len(numbers)))


def _date_forms(different: Counter[str]) -> Sequence[str]:
    """Return the form of dates, or two forms where each date has one of them; nothing for other texts."""
    for forms in (*combinations(_DATES, 1), *combinations(_DATES[:-1], 2)):
        if all(day_of(text, forms) is not None for text in different):
            return forms
    return ()


def _widened(numbers: FloatArray) -> tuple[float, float]:
    """Return a range around numbers that shows neither the least nor the largest: half as wide again on both sides, and round."""
    low, high = float(numbers.min()), float(numbers.max())
    more = 0.5 * ((high - low) or abs(high) or 1.0)
    step = 10.0 ** floor(log10(high - low + 2 * more))
    least = floor((low - more) / step) * step
    return (0.0 if low >= 0 and least < 0 else least), ceil((high + more) / step) * step


def _yaml(value: object) -> str:
    """Return a value as it can stand in a line of YAML."""
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    text = str(value)
    plain = re.fullmatch(r"[^\W\d][\w-]*", text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


#: What YAML reads as something else than text.
_WORDS = frozenset(("yes", "no", "on", "off", "true", "false", "null", "y", "n"))

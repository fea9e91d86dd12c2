"""What an operator asks of a kit before the first job: what may jobs do, are the rows named, can they be used?

Everything here is for the site's own eyes. Texts and tables name columns and show values.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flareclust._foundation.certificates import certificate_problem, ends_soon
from flareclust._foundation.display import some
from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.typing import FloatArray
from flareclust.core.chunks import is_mapped, pieces, variances
from flareclust.data import image_files
from flareclust.data.digest import digest_of
from flareclust.data.tables import Table
from flareclust.evaluation.agreement import coded_cells
from flareclust.evaluation.bounds_fit import beside_ranges
from flareclust.preparation.columns import OUTWEIGHS, outweighing
from flareclust.privacy.policy import Policy
from flareclust.privacy.saturation import most_levels
from flareclust.sites import account
from flareclust.sites.part_rows import POLICED
from flareclust.sites.permissions import KitFiles, versions
from flareclust.sites.policy_file import policy_of
from flareclust.sites.rows import SiteData, check_places
from flareclust.sites.running import owner_without_jobs, protection, unguarded_scripts

#: With fewer rows than this, integers that all differ are no sign of a row's number.
_ENOUGH = 20

#: Different values of a column are counted up to about so many.
_MOST_DIFFERENT = 10_000

#: Bytes of rows among which repeated ones are looked for.
_LOOKED_AT = 64 << 20


@dataclass(frozen=True)
class _Column:
    """One column of a site's rows.

    Attributes:
        name: what it is called.
        different: how many different values it has.
        minimum, mean, largest: of its values.
        deviation: their standard deviation, 0 where all are equal.
        more: whether there are more different values than were counted.
        numbers_rows: whether all its values are integers that differ, as the number of a patient; with `more`, those
            that were counted.
    """

    name: str
    different: int
    minimum: float
    mean: float
    largest: float
    deviation: float
    more: bool
    numbers_rows: bool


@dataclass(frozen=True)
class Checked:
    """What a kit brings to a job.

    Attributes:
        name: of the site, or of the server.
        facts: what is to be known, by subject.
        errors: why no job can run, a sentence each.
        hints: what the operator may want to change, a sentence each; none of it keeps jobs out.
        rows: the site's; None where they cannot be read, and for kits without rows.
        without_rows: what the kit is, where it has no rows: "a server", "a relay" or "a user".
    """

    name: str
    facts: Mapping[str, str]
    errors: Sequence[str]
    hints: Sequence[str]
    rows: "Rows | None" = None
    without_rows: str | None = None


@dataclass(frozen=True)
class Rows:
    """What a site's rows look like.

    Attributes:
        file: where they are; a pattern where there are several files.
        number: how many.
        columns: a line each; none for images, whose columns are pixels.
    """

    file: Path
    number: int
    columns: Sequence[_Column]


def local_of(kit: Path) -> Path:
    """Return the folder `local` of a site's kit, as NVFlare's provisioning makes it.

    Raises:
        UserError: the folder is no kit.
    """
    if not (kit / "startup").is_dir() or not (kit / "local").is_dir():
        raise UserError(
            f"{kit} is no kit: expected a folder with startup/ and local/, such as kits/clinics/prod_00/north"
        )
    return kit / "local"


def check(kit: Path, site: str | None = None) -> Checked:
    """Look at a kit's files, read a site's rows as a job would, and look for what is odd about them.

    What the files say is found first, so that no trouble with the rows hides it. The kit may be a site's, the server's, a relay's or
    a user's; its name is that of the folder unless it is given.

    Raises:
        UserError: the folder is no kit.
    """
    local, name = local_of(kit), site or kit.absolute().name
    running, troubles = protection(kit)
    ended, ending = certificate_problem(kit), ends_soon(kit)
    if ended is not None:
        troubles, ending = [f"the kit {ended}", *troubles], None
    hints = [] if ending is None else [ending]
    if (owner := owner_without_jobs(kit)) is not None:
        about, errors = {"messages": running, "versions": versions()}, [*unguarded_scripts(kit), *troubles]
        return Checked(name, about, errors, hints, None, owner)
    files = KitFiles(local)
    facts = files.facts() | {"messages": running}
    errors, rows, table = [*files.problems(name), *troubles], None, None
    if not files.of_server:
        try:
            data = SiteData.of(local, name, reader_owns_them=True)
            hints += check_places(data, kit)
            if data.compute is not None:
                rows, own = _on_cluster(data, local)
            else:
                table = data.table(reader_owns_them=True, scratch=kit)
                rows, own = _described(data, table), _facts(data, table, files.policy)
            facts = own | facts
        except Refusal as reason:
            errors.append(f"{name} {reason}")
        except UserError as error:
            errors.append(f"{name} cannot use its rows: {error}")
    hints += files.hints()
    if table is not None and rows is not None:
        hints += [] if data.query is None else data.query.hints(has_ids=table.ids is not None)
        hints += [table.rows_read.notes()["repeated"]] if table.rows_read.repeated else []
        hints += withdrawn_hints(table)
        hints += [data.schema.outcome_hint] if data.schema is not None and data.schema.outcome_hint else []
        hints += _odd(table, rows.columns, scaled=data.schema is not None and data.schema.units_differ)
        hints += coded_cells({name: table}) if rows.columns else []
        problems, beside_bounds, budget = _under_policy(files, name, table)
        hints += [*beside_ranges(data.schema, table), *beside_bounds]
        errors, facts = [*errors, *problems], facts | budget
    about = facts | {"versions": versions()}
    return Checked(name, about, errors, hints, rows, "a server" if files.of_server else None)


def _described(data: SiteData, table: Table) -> Rows:
    if _folder_of_images(data) is not None:
        return Rows(data.path, len(table), ())
    names = table.columns or tuple(f"column {j + 1}" for j in range(table.X.shape[1]))
    where = data.path if data.query is None else Path(f"what the query gives of {data.path.name}")
    return Rows(where, len(table), columns_of(table.X, names))


def _on_cluster(data: SiteData, local: Path) -> tuple[Rows, dict[str, str]]:
    """Return what rows on the site's cluster look like, and facts about both; Refusal where no job can use them."""
    if policy_of(local) is not None:
        raise Refusal(POLICED)
    table = data.on_cluster(reader_owns_them=True)
    with closing(table.parts) as parts:
        files = {"files": str(len(data.files())), "columns": _named(table.columns)}
        size = f"{parts.workers} workers, {8 * len(parts) * parts.d / 1e6:,.1f} MB"
        return Rows(data.path, len(parts), ()), files | _settings(data, f"on the Dask cluster {data.compute}, {size}")


def _under_policy(files: KitFiles, name: str, table: Table) -> tuple[list[str], list[str], dict[str, str]]:
    """Return why the site's policy keeps its own rows out of every job, which columns do not fit its bounds, a sentence each, and
    whose budget jobs spend.
    """
    local, policy = files.local, files.policy
    if policy is None:
        return [], [], {}
    errors, hints, minimum = [], [], policy.least_rows(private=policy.dp is not None)
    if len(table) < minimum:
        errors.append(
            f"{name} has {len(table)} rows where its policy asks for {minimum} (min_rows, min_count): no job can take part; "
            "flareclust site policy says what holds, and changes it"
        )
    if policy.dp is None:
        return errors + _saturated(policy, name, table), [], {}
    from flareclust.privacy.dp.budget import bounds_of, misfitting
    from flareclust.privacy.dp.mechanism import check_installed

    try:
        check_installed()
        hints = misfitting(bounds_of(policy.dp.bounds, table.columns, table.X.shape[1]), table)
        trouble = account.budget_of(local, name).trouble
        errors += [] if trouble is None else [f"{name}: {trouble}"]
    except Refusal as reason:
        errors.append(f"{name} {reason}")
    except UserError as error:
        errors.append(str(error))
    return errors, hints, account.facts(local, policy, name)


def _saturated(policy: Policy, name: str, table: Table) -> list[str]:
    """Return why a table has too many categories for any job, nothing where it has not."""
    most, levels = policy.max_levels_per_row, most_levels(table.columns or ())
    if most is None or levels <= most * len(table):
        return []
    found = f"{name} has a column with {levels:,} categories for {len(table):,} rows, more than its policy allows (max_levels_per_row)"
    return [f"{found}: no job can take part; join categories in the schema, or leave the column out"]


def _folder_of_images(data: SiteData) -> Path | None:
    return next((file.path for file in data.files() if file.path.is_dir()), None)


def _facts(data: SiteData, table: Table, policy: Policy | None) -> dict[str, str]:
    place = "on disk" if is_mapped(table.X) else "in memory"
    images, files = _folder_of_images(data), {"files": str(len(data.files()))}
    if data.query is not None:
        files = {
            "query": f"fingerprint of its rows {digest_of('', [table])}; other rows, or another order, have another one"
        }
    if images is not None:
        shape = image_files.named(image_files.first_shape(images))
        files = {"images": f"{len(table):,} of height x width x channels {shape}"}
    schema = {}
    if data.schema is not None:
        schema = {"schema": f"{data.schema.fingerprint}, {len(data.schema.features)} features; the same at all sites"}
        if "gaps" in table.rows_read.notes():
            schema["dropped"] = table.rows_read.notes()["gaps"]
        missing = zip(table.columns or (), np.isnan(table.X).sum(axis=0).tolist(), strict=True)
        if gaps := [f"{name} {number:,}" for name, number in missing if number]:
            schema["missing cells"] = f"{', '.join(gaps)}; for jobs with missing=mean or missing=partial"
        if (outcome := data.schema.outcome) is not None:
            schema["outcome"] = outcome.words(data.schema.columns, table.outcomes)
    kept = f"{place}, {table.X.nbytes / 1e6:,.1f} MB ({(data.memory or 0) / 1e6:,.0f} MB of memory allowed)"
    ids = {} if images is None else {"ids": "relative paths"}
    out = {"withdrawn": withdrawn_words(data, table)} if data.withdrawn else {}
    return {**files, **schema, **_settings(data, kept, policy), **ids, **out}


def withdrawn_words(data: SiteData, table: Table) -> str:
    """Return how many ids a site has withdrawn, and how many of its rows jobs leave out for them."""
    ids, rows = len(data.withdrawn), table.rows_read.withdrawn
    return f"{ids:,} id{'' if ids == 1 else 's'}, {rows:,} row{'' if rows == 1 else 's'} left out of every job"


def withdrawn_hints(table: Table) -> list[str]:
    """Return which withdrawn ids no row that jobs use has, in sentences; for the site's own eyes."""
    hints = []
    for ids, where in (
        (table.not_found, "in no row"),
        (table.dropped, "only in rows that are left out anyway, since a cell is missing"),
    ):
        if ids:
            count = "1 withdrawn id is" if len(ids) == 1 else f"{len(ids):,} withdrawn ids are"
            hints.append(f"{count} {where}: {some(sorted(ids), 12)}")
    return hints


def _settings(data: SiteData, kept: str, policy: Policy | None = None) -> dict[str, str]:
    """Return what a site's configuration says of its rows, and where they are kept."""
    least = data.min_rows if policy is None else max(data.min_rows, policy.least_rows(private=policy.dp is not None))
    return {
        "rows asked for": f"at least {least}" + ("" if data.max_rows is None else f", at most {data.max_rows}"),
        "kept": kept,
        "ids": "none" if data.id is None else f"in {data.id!r}",
        "labels": "in the folder of each job" if data.labels is None else f"in {data.labels}",
    }


def _odd(table: Table, columns: Sequence[_Column], *, scaled: bool) -> list[str]:
    """Return what is odd about the columns, a sentence each. Jobs by a schema whose units differ have them `scaled`."""
    hints: list[str] = []
    if not columns:
        return _repeats(table)
    if table.columns is None:
        hints.append("the columns have no names, so they are matched with those of other sites by place")
    if constant := [column.name for column in columns if column.different == 1]:
        hints.append(f"one value only in {_named(constant)}")
    if len(table) >= _ENOUGH and (ids := [column.name for column in columns if column.numbers_rows]):
        hints.append(
            f"{_named(ids)}: integers that all differ, as the number of a patient; leave such columns out, or name "
            "one as `id`"
        )
    names, deviations = [column.name for column in columns], np.array([column.deviation for column in columns])
    if not scaled and (widest := outweighing(names, deviations)) is not None:
        hints.append(
            f"{widest!r} varies more than {OUTWEIGHS} times as much as half of the columns and would decide "
            "the distances: bring columns to comparable units, in the same way at all sites, or set scale=standard"
        )
    return [*hints, *_repeats(table)]


def _repeats(table: Table) -> list[str]:
    if table.repeats > 1:  # a row is there as often as it counts
        return []
    X, (n, d) = table.X, table.X.shape
    rows = X[: max(1, _LOOKED_AT // (8 * d))]
    copies = len(rows) - len(np.unique(rows, axis=0))
    if copies <= len(rows) // 2:
        return []
    number = f"{n}" if len(rows) == n else f"the first {len(rows)}"
    return [f"{copies} of {number} rows repeat another one; clusters of one row repeated are sent with other rows only"]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(map(repr, names[:12])) + more


class _Different:
    """Counts the different values of one column, piece by piece."""

    def __init__(self) -> None:
        self.seen: FloatArray = np.empty(0)
        self._rows = 0
        self.whole, self.all_differ, self.more = True, True, False

    def look(self, x: FloatArray) -> None:
        self.whole = self.whole and bool((x == np.floor(x)).all())
        self._rows += len(x)
        if self.more:
            return
        if len(self.seen) > _MOST_DIFFERENT:
            self.more = not bool(np.isin(x, self.seen).all())
            return
        self.seen = np.union1d(self.seen, x)
        self.all_differ = self.all_differ and len(self.seen) == self._rows


def columns_of(X: FloatArray, names: Sequence[str]) -> list[_Column]:
    """Return a summary of each column of rows (n, d), which may be a map of a file; of the known cells where some are NaN."""
    if np.isnan(X.min()):
        return [_of_known(x[~np.isnan(x)], name) for x, name in zip(X.T, names, strict=True)]
    different = [_Different() for _ in names]
    for part in pieces(*X.shape):
        for counter, x in zip(different, X[part].T, strict=True):
            counter.look(x)
    minimum, mean, largest = X.min(axis=0), X.mean(axis=0), X.max(axis=0)
    deviation = np.where(largest > minimum, np.sqrt(variances(X)), 0.0)
    low, middle, high, spread = np.stack([minimum, mean, largest, deviation]).tolist()
    return [
        _Column(name, len(c.seen), low[j], middle[j], high[j], spread[j], c.more, c.whole and c.all_differ)
        for j, (name, c) in enumerate(zip(names, different, strict=True))
    ]


def _of_known(cells: FloatArray, name: str) -> _Column:
    if len(cells):
        return columns_of(cells[:, None], [name])[0]
    return _Column(name, 0, 0.0, 0.0, 0.0, 0.0, more=False, numbers_rows=False)

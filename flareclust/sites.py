"""Where a site's rows come from: the site says so in its own `local/flareclust.yaml`, never the job.

The simulator and real deployments use the same file; the simulator's copy has `{site}` in the path. Example:

    path: /secure/data/{site}.parquet   # npy, npz, csv, parquet or arrow; or a path for each site by name
    columns: [age, crp, lactate]        # optional: these, in this order
    agreement: may-lack                 # optional: "exact" refuses a file with other columns, "may-lack" takes those it has
    salt: a secret of several sites     # optional: names of columns are compared by hashes with this salt
    hide: [lactate]                     # optional: names that do not leave the site, or true for all; needs the salt
"""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import yaml

from flareclust.errors import Refusal, UserError
from flareclust.tables import Table, read_table
from flareclust.typing import Agreement, FloatArray, IntArray, Reading

log = logging.getLogger(__name__)

CONFIG_FILE = "flareclust.yaml"
LABELS_FILE = "labels.csv"
HEADER = "row,label\n"

#: A shorter salt can be found by trying, as what is hashed with it travels.
SHORTEST_SALT = 16

#: What a site says that may not name its columns.
_HIDES = "cannot use its rows; why is in the site's own log, as it hides names of columns"

#: Numbers in a sentence, such as how many rows there are; "2-D" says nothing about the data.
NUMBER = re.compile(r"\b\d+\b(?!-D)")


@dataclass(frozen=True)
class SiteData:
    """One site's statement of where its rows are.

    Attributes:
        path: the file.
        columns: names of the columns to use, in this order; None for all.
        agreement: how the file must agree with `columns`.
        salt: the secret that several sites hash the names of their columns with, "" for none.
        hide: names that do not leave the site; True for all.
    """

    path: Path
    columns: tuple[str, ...] | None = None
    agreement: Agreement = "has"
    salt: str = field(default="", repr=False)
    hide: frozenset[str] | Literal[True] = frozenset()

    @classmethod
    def of(cls, local: str | Path, site: str) -> "SiteData":
        """Read `flareclust.yaml` in the site's folder `local`.

        Raises:
            Refusal: the file is missing or does not say where the rows are.
        """
        file = Path(local) / CONFIG_FILE
        if not file.is_file():
            raise Refusal(f"has no local/{CONFIG_FILE}, which says where its rows are")
        try:
            config = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError):
            raise Refusal(f"has a local/{CONFIG_FILE} that is not YAML") from None
        path = config.get("path") if isinstance(config, dict) else None
        if isinstance(path, dict):
            path = path.get(site)
        if not isinstance(path, str):
            raise Refusal(f"has a local/{CONFIG_FILE} without a path to its rows")
        unknown = sorted(set(map(str, config)) - {"path", "columns", "agreement", "salt", "hide"})
        if unknown:
            raise Refusal(f"has unknown keys in local/{CONFIG_FILE}: {', '.join(unknown)}")
        columns = config.get("columns")
        if columns is not None and not (
            columns and isinstance(columns, list) and all(isinstance(c, str) for c in columns)
        ):
            raise Refusal(f"has a local/{CONFIG_FILE} whose columns are not a list of names")
        return cls(
            Path(local) / path.replace("{site}", site),
            None if columns is None else tuple(columns),
            *_disclosed(config),
        )

    def rows(self, *, reader_owns_them: bool = False) -> FloatArray:
        """Read the rows (n, d), as `table` does."""
        return self.table(reader_owns_them=reader_owns_them).X

    def table(self, *, reader_owns_them: bool = False) -> Table:
        """Read the rows (n, d) with the names of their columns.

        Args:
            reader_owns_them: whether the text of a refusal stays with those who own the rows, and may say more.

        Raises:
            Refusal: they cannot be used; the text may name the file and its columns, but no folder and no number, such
                as how many rows there are. The site's own log has them.
        """
        try:
            return self._read()
        except Refusal as reason:
            if self.hide and not reader_owns_them:
                log.warning("the rows cannot be used: it %s", reason)
                raise Refusal(_HIDES) from None
            raise
        except UserError as error:
            text = str(error).replace(str(self.path), self.path.name)
            if reader_owns_them:
                raise Refusal(f"cannot use its rows: {text}") from None
            log.warning("the rows cannot be used: %s", text)
            raise Refusal(_HIDES if self.hide else f"cannot use its rows: {NUMBER.sub('#', text)}") from None

    def _read(self) -> Table:
        self._refuse_others()
        found = read_table(self.path, columns=self.columns, may_lack=self.agreement == "may-lack")
        names = frozenset(found.columns or ())
        if self.hide is not True and (odd := sorted(self.hide - names)):
            raise UserError(f"{self.path}: hide names columns that are not there: {', '.join(odd)}")
        return replace(found, salt=self.salt, hidden=names if self.hide is True else self.hide)

    def _refuse_others(self) -> None:
        """Raise Refusal where the file must have the columns asked for and no others, and does not."""
        if self.agreement != "exact" or self.columns is None:
            return
        names = read_table(self.path).columns
        if names is not None and set(names) != set(self.columns):
            odd = ", ".join(sorted(set(names) ^ set(self.columns)))
            number = f"{len(names)} columns where most sites have {len(self.columns)}"
            if len(names) == len(self.columns):
                number = "other columns than most sites"
            raise Refusal(f"has {number}; on one side only: {odd}. masked and proxy take sites with different columns")


def _disclosed(config: Mapping[str, Any]) -> tuple[Agreement, str, frozenset[str] | Literal[True]]:
    """Return how the columns must agree, the salt and the hidden names of a site's configuration."""
    agreement, salt, hide = config.get("agreement", "has"), config.get("salt", ""), config.get("hide", [])
    if agreement not in get_args(Agreement):
        raise Refusal(f"has a local/{CONFIG_FILE} whose agreement is none of {', '.join(get_args(Agreement))}")
    if not isinstance(salt, str) or 0 < len(salt) < SHORTEST_SALT:
        raise Refusal(f"has a local/{CONFIG_FILE} whose salt is no text of at least {SHORTEST_SALT} characters")
    if hide is not True and not (isinstance(hide, list) and all(isinstance(name, str) for name in hide)):
        raise Refusal(f"has a local/{CONFIG_FILE} whose hide is neither true nor a list of names")
    if hide and not salt:
        raise Refusal(
            f"has a local/{CONFIG_FILE} that hides columns without a salt; without one, anybody can try names"
        )
    return agreement, salt, True if hide is True else frozenset(hide)


def write_config(local: Path, path: str | dict[str, str], reading: Reading = None) -> None:
    """Write the site configuration that `SiteData.of` reads into the folder `local`."""
    local.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {"path": path}
    if reading is not None:
        config |= {"columns": list(reading[0]), "agreement": reading[1]}
    (local / CONFIG_FILE).write_text(yaml.safe_dump(config, sort_keys=False))


def write_site(file: Path, rows: str, columns: Sequence[str] | None = None) -> Path:
    """Write a site's own configuration to a new file and return it."""
    config: dict[str, Any] = {"path": rows} | ({"columns": list(columns)} if columns else {})
    file.write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return file


def write_labels(folder: Path, labels: IntArray) -> None:
    """Write a site's labels (n,) to `labels.csv` in its own folder, readable by the site's account only."""
    path = folder / LABELS_FILE
    path.unlink(missing_ok=True)  # an older file would keep its own mode
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(HEADER)
        file.writelines(f"{row},{label}\n" for row, label in enumerate(labels.tolist()))


def is_labels_file(path: Path) -> bool:
    """Return whether `write_labels` may write to this path: it is free, or holds older labels of ours."""
    if not path.exists():
        return True
    with path.open(errors="replace") as file:
        return file.readline() == HEADER


def read_labels(folder: Path) -> IntArray:
    """Read the labels (n,) that `write_labels` wrote."""
    table = np.loadtxt(folder / LABELS_FILE, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)
    return table.reshape(-1, 2)[:, 1]

"""Whole commands with odd arguments and files: each ends in time, with what it promises or one line about what is wrong."""

import io
import json
import os
import resource
import shutil
import signal
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from flareclust._foundation.interrupts import ENDING
from flareclust.cli.main import main
from flareclust.data.memory import LIMIT
from flareclust.data.partition import SPECS
from flareclust.protocol import registry
from flareclust.sites.config import CONFIG_FILE
from tests.fuzz.choices import Choices, spoiled
from tests.fuzz.files import mutated_config, mutated_table
from tests.fuzz.specs import _NUMBERS, _VALUES, sweep_text
from tests.fuzz.watch import limited

#: Seconds of processor time for one command, and bytes by which the process may grow in all.
SECONDS, GROWTH = 30.0, 1 << 30

_SITES = ("--engine", "inprocess", "--no-track")
_NAMES = ("\x1b[2Jx", "a" * 300, "a/b", "../x", "\u202e", "x\ny", "[red]x[/red]", "-", " ", "é" * 200)

_POLICIES = (
    "min_count: 10\nround_counts: 5\n",
    "min_count: 3\narrays: [centroids, counts]\nmax_rounds: 3\n",
    "differential_privacy:\n  bounds: [-4, 4]\n  epsilon: 1.0\n  delta: 1e-5\n  budget: 2.0\n",
)


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code and what it wrote."""

    args: tuple[str, ...]
    code: int
    out: str
    err: str


def ended(args: list[str]) -> Ended:
    """Call the command in this process; what it raises beside SystemExit comes through."""
    out, err = io.StringIO(), io.StringIO()
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        with limited(SECONDS), redirect_stdout(out), redirect_stderr(err):
            main(args)
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Ended(tuple(args), code, out.getvalue(), err.getvalue())


def prepare(folder: Path) -> None:
    """Write the honest files of the cases into an empty folder: rows, and the result of a run."""
    np.save(folder / "rows.npy", np.random.default_rng(0).normal(size=(60, 4)))
    made = ended(
        [
            "run",
            "feca",
            "--data",
            str(folder / "rows.npy"),
            "--k",
            "3",
            "--n-sites",
            "2",
            *_SITES,
            "--out",
            str(folder / "result"),
        ]
    )
    assert made.code == 0, made


def _text(choices: Choices, *known: str) -> str:
    """Return a text near a known one, or an odd one; arguments of a program hold no NUL."""
    match choices.less_than(4):
        case 0:
            text = choices.one_of((*_NAMES, *_NUMBERS))
        case 1:
            text = spoiled(choices.one_of(known).encode(), choices).decode(errors="replace")
        case _:
            text = choices.one_of(known)
    return text.replace("\0", "?")


def _run(choices: Choices, folder: Path) -> list[str]:
    """Return `run` with odd arguments."""
    name = (
        _text(choices, *registry.algorithms())
        if choices.less_than(8) == 0
        else choices.one_of(list(registry.algorithms()))
    )
    names = ("n_init", "rounds", *(registry.get(name).parameters() if name in registry.algorithms() else ()))
    data = (
        choices.one_of((str(folder / "rows.npy"), "iris"))
        if choices.less_than(8)
        else _text(choices, "iris", "digits:pca3", "rows.npy")
    )
    args = ["run", name, "--data", data, *_SITES]
    options: dict[str, Callable[[], str]] = {
        "--k": lambda: _text(choices, "3", "2..4", "1"),
        "--partition": lambda: _text(choices, *SPECS, "dirichlet:0.3", "power:1.2", "features-overlap:0.5"),
        "--n-sites": lambda: choices.one_of(("1", "2", "3", "60", "61", "0", "-1", "9" * 30, "x", "1e3")),
        "--columns": lambda: _text(choices, "a,b", "x1", ""),
        "--seed": lambda: choices.one_of(("0", "4294967295", "4294967296", "-1", "x")),
        "--min-sites": lambda: choices.one_of(("1", "3", "0", "-1", "9" * 30)),
        "--task-timeout": lambda: choices.one_of(("1", "0", "-1", "9" * 30)),
        "--criterion": lambda: _text(choices, "elbow", "silhouette"),
        "--policy": lambda: _text(choices, str(folder / "no-such-file")),
        "--kit": lambda: _text(choices, str(folder)),
    }  # fmt: skip
    args += ["--k", "3"] if choices.less_than(4) else []
    for _ in range(choices.less_than(3)):
        option = choices.one_of(tuple(options))
        args += [option, options[option]()]
    for _ in range(choices.less_than(2)):
        args += ["--set", f"{choices.one_of(names)}={_text(choices, *_VALUES)}".replace("\0", "?")]
    return args


def _data(choices: Choices, folder: Path) -> list[str]:
    """Return `run` or `assign` on a damaged table."""
    kind, content = mutated_table(choices)
    (folder / f"t.{kind}").write_bytes(content)
    if choices.less_than(3) == 0:
        return ["assign", str(folder / "result"), "--data", str(folder / f"t.{kind}"), "--out", str(folder / "labels")]
    return ["run", "pooled", "--data", str(folder / f"t.{kind}"), "--k", "2", "--n-sites", "2", *_SITES]


def _sweep(choices: Choices, folder: Path) -> list[str]:
    """Return `sweep` with an odd file, whose data are not there, so that no trial runs."""
    text = sweep_text(choices).replace(b"iris", b"no-such-data").replace(b"digits", b"no-such-data")
    (folder / "s.toml").write_bytes(text)
    return ["sweep", str(folder / "s.toml"), "--no-track", "--out", str(folder / "sweeps")]


def _site(choices: Choices, folder: Path) -> list[str]:
    """Return `site check` with an odd configuration."""
    local = folder / "kit" / "local"
    local.mkdir(parents=True, exist_ok=True)
    (folder / "kit" / "startup").mkdir(exist_ok=True)
    (folder / "kit" / "startup" / "fed_client.json").write_text("{}")
    (local / CONFIG_FILE).write_bytes(mutated_config(choices))
    return [
        "site",
        "check",
        str(folder / "kit"),
        *(["--site", _text(choices, "site-1")] if choices.less_than(2) else []),
    ]


def _policy(choices: Choices, folder: Path) -> list[str]:
    """Return `run` with a policy, odd or as it should be."""
    text = choices.one_of(_POLICIES).encode()
    odd = spoiled(text, choices), mutated_config(choices), b"[" * 3000, b"{a: " * 500, text + text
    content = choices.one_of((text, *odd))
    (folder / "policy.yaml").write_bytes(content)
    rows = str(folder / "rows.npy")
    return [
        "run",
        choices.one_of(("pooled", "dp-lloyd")),
        "--data",
        rows,
        "--k",
        "2",
        "--n-sites",
        "2",
        "--policy",
        str(folder / "policy.yaml"),
        *_SITES,
    ]


_JSON = (None, True, 0, -1, 10**30, 1.5, "", "\x1b[2J", "x" * 5000, [], [[]], {}, {"a": []}, ["a"], [1], {"up": "x"})


def _result(choices: Choices, folder: Path) -> list[str]:
    """Return `assign` on a result that was damaged or edited."""
    edited = folder / "edited"
    shutil.rmtree(edited, ignore_errors=True)
    shutil.copytree(folder / "result", edited)
    match choices.less_than(5):
        case 0:
            file = edited / choices.one_of(("result.json", "result.npz", "rounds.jsonl"))
            file.write_bytes(spoiled(file.read_bytes(), choices))
        case 1:
            (edited / choices.one_of(("result.json", "result.npz", "rounds.jsonl"))).unlink()
        case 2:
            arrays = {
                choices.one_of(("centroids", "x")): choices.one_of(
                    (np.zeros(3), np.zeros((2, 3)), np.full((2, 4), np.nan), np.array([["a"]]))
                )
            }
            np.savez(edited / "result.npz", **arrays)
        case 3:
            (edited / choices.one_of(("result.json", "rounds.jsonl"))).write_text(
                choices.one_of(("[" * 100_000, '{"a":' * 100_000, "[]\n", "3\n", '"x"\n', ""))
            )
        case _:
            about = json.loads((edited / "result.json").read_text())
            for _ in range(1 + choices.less_than(2)):
                about[choices.one_of(list(about))] = choices.one_of(_JSON)
            (edited / "result.json").write_text(json.dumps(about))
    site = _text(choices, "late-site", "site-1")
    return ["assign", str(edited), "--data", str(folder / "rows.npy"), "--site", site, "--out", str(folder / "labels")]


#: The kinds of cases.
KINDS = MappingProxyType(
    {"run": _run, "data": _data, "sweep": _sweep, "site": _site, "policy": _policy, "result": _result}
)

#: Those of which some cases do what was asked; the rows of `sweep` and `site` are never there.
SUCCEEDING = ("run", "data", "policy", "result")


def check(kind: str, data: bytes, folder: Path) -> int:
    """Call the command that these bytes decide on; return its exit code, AssertionError where it ends otherwise than promised."""
    os.environ[LIMIT] = "64MB"
    os.chdir(folder)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    args = KINDS[kind](Choices(data), folder)
    try:
        done = ended(args)
    except BaseException as error:
        raise AssertionError(f"{args} raised {error!r}"[:2000]) from error
    about = f"{done}"[:3000]
    assert done.code in (0, 1, 2), about
    assert "Traceback" not in done.err + done.out, about
    assert "\x1b" not in done.err + done.out, about
    if done.code and "Usage:" not in done.err:  # which typer draws for arguments that it cannot read
        lines = [line for line in done.err.splitlines() if not line.startswith("WARNING ")]
        assert lines, about
        assert all(line.startswith("error: ") for line in lines) if kind == "site" else len(lines) == 1, about
        assert max(map(len, lines)) < (2000 if done.code == 2 else 20_000), about
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < GROWTH, f"{grown} bytes: {about}"
    return done.code

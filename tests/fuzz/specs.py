"""What a user writes on the command line and in a sweep's file, and what reads it."""

from pathlib import Path
from typing import Any

from flareclust._foundation.errors import UserError
from flareclust._foundation.options import split_names
from flareclust.cli.settings import parse_settings
from flareclust.data.partition_specs import SPECS, parse
from flareclust.evaluation.selection import parse_k
from flareclust.experiment.config import make_experiment
from flareclust.experiment.sweeps import sweep as sweep_settings
from flareclust.protocol import registry
from tests.fuzz.choices import Choices, spoiled
from tests.fuzz.watch import limited

_NUMBERS = (
    *(
        "0",
        "1",
        "2",
        "-1",
        "3.5",
        "1e400",
        "-1e400",
        "nan",
        "inf",
        "1e-320",
        "1_0",
        "٣",
        "9" * 30,
        "9" * 5000,
        "0x1",
        "",
    ),
    *("5..25", "25..5", "1..3", "..", "2.." + "9" * 5000, "9" * 5000 + "..3", "2..3..4", " 7 ", "7\n", "True", "NaN"),
)
_VALUES = (
    *_NUMBERS,
    *(
        "true",
        "false",
        "null",
        "None",
        '"text"',
        "text",
        "[]",
        "[1, 2]",
        "{}",
        '{"a": [1]}',
        "[" * 3000,
        '{"a":' * 3000,
    ),
    *("[[" * 200 + "]]" * 200, '"\\ud800"', "\0", "'", "a" * 500, "Infinity", "-0", "1e308", "[NaN]", '["iid", 3]'),
)
_TOML = (
    *_VALUES,
    *(
        "2020-01-01",
        "2020-99-99",
        "1979-05-27T07:32:00Z",
        "07:32:00",
        "0xffffffffffffffffffff",
        "inf",
        "'''x",
        "{a = 1}",
    ),
    *(
        "['iid', 'power:1']",
        "['feca', 'kfed']",
        "[{name = 'kfed', k_local = [1, 2]}]",
        "[" * 2000,
        "{a=" * 2000,
        "[[]]",
    ),
    *(
        "['iris', 'iris']",
        "'no such data'",
        "'\\u0000'",
        "['\\u0000']",
        "'iid'",
        "99999999999",
        "[1, 1]",
        "[true]",
        "''",
    ),
)
SWEEPS = (
    'name = "digits"\ndata = "iris"\nalgorithms = ["feca", "kfed"]\nseeds = 3\nn_sites = 5\npartitions = "iid"\n',
    (
        'name = "grid"\ndata = ["iris", "t.csv"]\nk = [3, 4]\nworkers = 2\nengine = "inprocess"\nmin_sites = 2\n'
        'partitions = ["dirichlet:0.3", "clusters:2"]\n\n[[algorithms]]\nname = "kfed"\nk_local = [2, 3]\nlabel = "k"\n'
    ),
)


def _text(choices: Choices, *known: str) -> str:
    """Return a text near a known one, or any."""
    match choices.less_than(3):
        case 0:
            return choices.one_of(known)
        case 1:
            return spoiled(choices.one_of(known).encode(), choices, choices.one_of(_VALUES).encode()).decode(
                errors="replace"
            )
        case _:
            return choices.take(1 + choices.less_than(20)).decode(errors="replace")


def asked(choices: Choices) -> None:
    """Read one random request; UserError is the answer to a wrong one."""
    choices.one_of((_k, _partition, _settings, _columns, _experiment))(choices)


def _k(choices: Choices) -> None:
    parse_k(_text(choices, *_NUMBERS))


def _partition(choices: Choices) -> None:
    spec = (
        f"{choices.one_of(tuple(SPECS))}:{choices.one_of(_NUMBERS)}" if choices.less_than(2) else _text(choices, *SPECS)
    )
    assert parse(str(parse(spec))) == parse(spec)


def _columns(choices: Choices) -> None:
    split_names(_text(choices, "a,b", "age, crp", ",", ""))


def _pairs(choices: Choices, names: tuple[str, ...]) -> list[str]:
    pairs = [f"{choices.one_of(names)}={_text(choices, *_VALUES)}" for _ in range(1 + choices.less_than(3))]
    return pairs if choices.less_than(8) else [_text(choices, *pairs)]


def _settings(choices: Choices) -> None:
    """Give an algorithm settings as the command line would."""
    algorithm = choices.one_of([one for one in registry.algorithms().values() if one.federated])
    names = tuple(algorithm.parameters()) or ("none",)
    algorithm.build(1 + choices.less_than(9), choices.less_than(5), parse_settings(_pairs(choices, names)))


def _experiment(choices: Choices) -> None:
    """Make an experiment as `flareclust run` would."""
    name = choices.one_of(tuple(registry.algorithms()))
    settings: dict[str, Any] = {
        "k": _text(choices, *_NUMBERS),
        "partition": _text(choices, *SPECS, "dirichlet:0.3", "beta:1,redraw"),
        "columns": split_names(_text(choices, "a,b", "")),
        "criterion": _text(choices, "silhouette", "elbow"),
        "engine": choices.one_of(("inprocess", "simulator", "elsewhere", "")),
        "register_as": _text(choices, "model", "a/b"),
        "n_sites": choices.one_of((1, 10, 0, -1, 10**30, True, 2.5)),
        "seed": choices.one_of((0, 2**32, -1, 10**30)),
        "params": parse_settings(_pairs(choices, ("n_init", "rounds", *registry.get(name).parameters()))),
    }
    kept = {key: value for key, value in settings.items() if choices.less_than(3) == 0}
    make_experiment(algorithm=name, **kept)


def sweep_text(choices: Choices) -> bytes:
    """Return the text of a sweep's file: random, or a real one with other bytes or other values."""
    if not choices.less_than(8):
        return choices.rest()
    text = choices.one_of(SWEEPS)
    if choices.less_than(4):
        lines = text.splitlines(keepends=True)
        for _ in range(1 + choices.less_than(2)):
            at = choices.less_than(len(lines))
            lines[at] = f"{lines[at].partition('=')[0]}= {choices.one_of(_TOML)}\n"
        text = "".join(lines)
    return spoiled(text.encode(), choices) if choices.less_than(2) else text.encode(errors="replace")


def read_sweep_text(text: bytes, folder: Path) -> str | None:
    """Read a sweep's file; return the text of the error, None where there is none."""
    path = folder / "sweep.toml"
    path.write_bytes(text)
    try:
        sweep_settings.read_sweep(path)
    except UserError as error:
        return str(error)
    return None


def check_spec(folder: Path, data: bytes) -> str | None:
    """Read the request that these bytes decide on; return the text of the error, None where there is none."""
    choices = Choices(data)
    with limited():
        if not choices.less_than(3):
            return read_sweep_text(sweep_text(choices), folder)
        try:
            asked(choices)
        except UserError as error:
            return str(error)
    return None

"""Files with settings: nothing in them is undone in silence, and what cannot be settings is refused at once, in words."""

import json
import time
from itertools import pairwise

import numpy as np
import pytest

from flareclust._foundation.errors import Refusal, UserError
from flareclust._foundation.settings_file import _LONGEST, Twice, parse_json
from flareclust.cli.main import main
from flareclust.privacy.policy import Policy, read_policy
from flareclust.sites.config import CONFIG_FILE
from flareclust.sites.policy_file import _GUARD, policy_of, remove_policy, write_policy
from flareclust.sites.rows import SiteData
from tests.fuzz.watch import peak_of, traced

DP = {"bounds": [-9, 9], "epsilon": 1, "delta": 1e-5, "budget": 5}


def private(**said: object) -> dict[str, object]:
    return {"differential_privacy": {**DP, **said}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("min_count: 20\nround_counts: 5\nmin_count: 1\n", r"the key 'min_count' twice, again in line 3"),
        ('{"min_count": 20, "small": "drop",\n "min_count": 1}', r"the key 'min_count' twice, again in line 2"),
        ("min_count: 20\n'min_count': 1\n", r"'min_count' twice, again in line 2"),
        (
            "differential_privacy:\n  bounds: [0, 1]\n  epsilon: 1\n  delta: 1.0e-6\n  budget: 5\n  epsilon: 4\n",
            r"the key 'epsilon' twice, again in line 6",
        ),
        (
            "differential_privacy: {bounds: {age: [0, 9],\n  age: [0, 99]}, epsilon: 1, delta: 1.0e-6, budget: 5}",
            r"the key 'age' twice, again in line 2",
        ),
    ],
)
def test_a_key_that_is_there_twice_is_refused_with_its_line(tmp_path, text, words):
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=words):
        read_policy(file)


def test_a_key_twice_in_the_file_of_the_rows_is_refused_without_names_of_sites_and_columns(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((3, 2)))
    file = tmp_path / CONFIG_FILE
    file.write_text("path: rows.npy\nmin_rows: 1000\nmax_rows: 5000\nmin_rows: 1\n")
    with pytest.raises(Refusal, match="with 'min_rows' twice, again in line 4"):
        SiteData.of(tmp_path, "site-1")
    file.write_text("path: {secret-site: a.npy, secret-site: rows.npy}\n")
    with pytest.raises(Refusal, match="with a key twice, again in line 1"):
        SiteData.of(tmp_path, "secret-site")


def test_a_key_twice_in_a_kits_json_is_refused(tmp_path):
    file = write_policy(tmp_path, Policy(min_count=20))
    text = file.read_text()
    file.write_text(text.replace('"min_count": 20', '"min_count": 20, "min_count": 1'))
    assert json.loads(file.read_text())["components"][0]["args"]["min_count"] == 1
    words = r"the key 'min_count' twice, again in line \d+; .* or delete it and run `flareclust site policy KIT`"
    for ask in (policy_of, remove_policy):
        with pytest.raises(UserError, match=words):
            ask(tmp_path)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"a": 1,\n "a": 2}', 2),
        ('{"a": "\\"a\\": {[",\n "b": [{"a": 1}, {"a": 1}],\n\n "a" \n: 3}', 4),
        ('{"b": {"a": {}, "b": 1},\n "c": [\n{"a": 1, "\\u0061": 2}', 3),
        ('[{"a": 1}, {"a": [1, "a", "a"],\n "a": 2}] and no JSON', 2),
    ],
)
def test_a_key_twice_in_json_is_reported_with_its_line(text, line):
    with pytest.raises(Twice, match="the key 'a' twice") as caught:
        parse_json(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[1", 1),
        ("min_count: 1\n[1\n", 2),
        ("min_count: 1\n---\nmin_rows: 2\n", 2),
        ("min_count: 1\nmin_rows: 2\n<<: {round_counts: 1}\n", 3),
        ("min_count: 1\n? [1, 2]\n: 3\n", 2),
        ("min_count: 1\nmin_rows:\n  [2024-13-01]\n", 3),
        ("min_count: !mine 3\n", 1),
        ("min_count: 1\nmin_rows: \x01\n", 2),
    ],
)
def test_what_cannot_be_settings_is_reported_with_its_line(tmp_path, text, line):
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=rf"policy\.yaml cannot be read as settings \(line {line}\)$"):
        read_policy(file)


def test_what_a_policy_cannot_say_is_reported_with_its_file(tmp_path):
    file = tmp_path / "policy.yaml"
    for text, words in (("min_count: 0", "min_count must be"), ("min_cont: 3", "a policy has no 'min_cont'")):
        file.write_text(text)
        with pytest.raises(UserError, match=rf"policy\.yaml: {words}"):
            read_policy(file)
    kit = write_policy(tmp_path, Policy())
    kit.write_text(kit.read_text().replace('"min_rows"', '"min_raws"'))
    with pytest.raises(UserError, match=r"privacy\.json: a policy has no 'min_raws' \(did you mean 'min_rows'"):
        policy_of(tmp_path)
    kit.write_text(json.dumps({"components": [{"path": _GUARD, "args": [1]}], "scopes": [{}]}))
    with pytest.raises(UserError, match=r"privacy\.json: "):
        policy_of(tmp_path)


LINES = "".join(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghij"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arrays: " + "[" * 10_000, "nested too deep"),
        ('{"arrays": ' * 5_000, "nested too deep"),
        ("[" * 10_000 + "]" * 10_000, "nested too deep"),
        ("a: &a [x, x, x]\n" + LINES, "has an alias"),
        ("arrays: &a [*a]\n", "has an alias"),
        ("x: &x {min_count: 1}\n<<: *x\n", "has an alias"),
        ("<<: {min_count: 1}\n", r"settings \(line 1\)"),
        ("#" * (_LONGEST + 1), "longer than 256 KiB"),
        ("min_count: " + "9" * 100_000, r"settings \(line 1\)"),
        ("\nmin_count: !!python/object/apply:os.getcwd []", r"settings \(line 2\)"),
        ("min_count: 'open", r"settings \(line 1\)"),
    ],
)
def test_bombs_are_refused_at_once_in_one_line_and_little_memory(tmp_path, text, words, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text(text)

    def read() -> str:
        with pytest.raises(UserError, match=words) as caught:
            read_policy(file)
        return str(caught.value)

    began = time.process_time()
    read()  # without the tracing of memory, which takes most of the time
    assert time.process_time() - began < 5
    with traced():
        said, peak = peak_of(read)
    assert peak < 32 * _LONGEST
    assert "\n" not in said
    assert len(said) < 300 + len(str(file))


def test_bombs_in_a_kit_are_refused(tmp_path):
    (tmp_path / "privacy.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match="nested too deep"):
        policy_of(tmp_path)
    (tmp_path / CONFIG_FILE).write_text("path: a.npy\nhide: " + "[" * 10_000)
    with pytest.raises(Refusal, match="nested too deep"):
        SiteData.of(tmp_path, "site-1")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "policy.yaml").write_bytes(b"min_count: \xff\xfe")
    with pytest.raises(UserError, match="UTF-8"):
        read_policy(tmp_path / "policy.yaml")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"min_count": 1e30}, "min_count must be an integer"),
        ({"min_count": 10**30}, "min_count must be at most 1,000,000,000"),
        ({"min_count": True}, "min_count must be an integer"),
        ({"min_count": "20"}, "min_count must be an integer"),
        ({"round_counts": float("inf")}, "round_counts must be an integer"),
        ({"max_rounds": 10**4000}, "max_rounds must be at most"),
        ({"secure_sums": "yes"}, "secure_sums must be true or false"),
        (private(epsilon=6), r"epsilon=6 for one job is more than the budget of 5"),
        (private(epsilon="nan"), "epsilon must be a finite number above 0"),
        (private(epsilon=float("inf"), budget=float("inf")), "epsilon must be a finite number above 0"),
        (private(epsilon=True), "epsilon must be a finite number above 0"),
        (private(epsilon="much"), "epsilon must be a finite number above 0"),
        (private(epsilon=10**400), "epsilon must be a finite number above 0"),
        (private(budget=1e9), "budget must be a number from"),
        (private(delta=0.5), "delta must be a number from"),
        (private(bounds=[0, float("inf")]), "expected a pair of finite numbers"),
        (private(bounds=[float("nan"), 1]), "expected a pair of finite numbers"),
        (private(bounds=[0, 10**400]), "expected a pair of finite numbers"),
        (private(bounds=[False, True]), "expected a pair of finite numbers"),
        (private(bounds=["0", "1"]), "expected a pair of finite numbers"),
        (private(bounds=[[0, 1, 2]]), "expected a pair of finite numbers"),
        (private(bounds={}), "bounds by column need names"),
        (private(bounds={1: [0, 1], "1": [0, 2]}), "bounds by column need names, each once"),
    ],
)
def test_numbers_beyond_sense_are_refused_in_words(said, words):
    with pytest.raises(UserError, match=words) as caught:
        Policy.of(said)
    assert len(str(caught.value)) < 300


def test_arrays_that_no_algorithm_sends_are_refused_with_the_nearest(tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text("arrays: [centroid, counts]\n")
    with pytest.raises(UserError, match=r"no registered algorithm sends: 'centroid' \(did you mean 'centroids'\?\)"):
        read_policy(file)
    with pytest.raises(UserError, match="'nothing-like-it'"):
        read_policy({"arrays": ["nothing-like-it"]})
    assert read_policy({"arrays": ["centroids", "counts"]}).arrays == ("centroids", "counts")
    for folder in ("startup", "local"):
        (tmp_path / "north" / folder).mkdir(parents=True)
    with pytest.raises(SystemExit) as ended:
        main(["site", "policy", str(tmp_path / "north"), "--arrays", "centroids,count"])
    assert ended.value.code == 2
    assert "did you mean 'counts'" in capsys.readouterr().err
    assert policy_of(tmp_path / "north" / "local") is None

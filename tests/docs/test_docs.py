"""The documents say what the code does: generated tables, settings, commands, links, versions, the worked example."""

import ast
import importlib
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import typer
import yaml
from packaging.version import Version

import flareclust
from flareclust._foundation.errors import Refusal
from flareclust._foundation.settings import expected
from flareclust._foundation.version import misfit
from flareclust.cli.main import app
from flareclust.federation import nvflare_executor
from flareclust.federation.site import steps_to_end
from flareclust.protocol import registry
from flareclust.protocol.params import GENERAL
from flareclust.protocol.registry import BUILT_IN, Algorithm
from flareclust.testing import check_algorithm
from tests.paths import ROOT, of_the_whole

PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "poc_workspace").glob("*.md"))
)


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(page), flags=re.MULTILINE | re.DOTALL)


def generator() -> ModuleType:
    return importlib.import_module("benchmarks.pages.generate")


# Tables


GENERATED = [
    *("README.md", "mkdocs.yml", "docs/contents.md"),
    *("docs/algorithms.md", "docs/concepts.md", "docs/messages.md", "docs/stages.md"),
    *(f"docs/algorithms/{algorithm.name}.md" for algorithm in BUILT_IN),
]


@of_the_whole
@pytest.mark.parametrize("page", GENERATED)
def test_generated_tables_are_those_of_the_code(page: str) -> None:
    """If this fails, run `python -m benchmarks.pages.generate`."""
    generate = generator()
    assert set(generate.BLOCKS) == set(GENERATED)
    assert generate.rendered(page) == text_of(page)


@pytest.mark.parametrize("algorithm", [a for a in BUILT_IN if a.federated], ids=lambda a: a.name)
def test_the_page_on_messages_lists_what_leaves_a_site_in_every_step(algorithm: Algorithm) -> None:
    _, _, rest = text_of("docs/messages.md").partition("<!-- leaves -->")
    lines = rest.partition("<!-- /leaves -->")[0].splitlines()
    steps = steps_to_end(algorithm.executor_class())
    for step in (name for name, one in steps.items() if one.jobs != "secure"):
        (line,) = [line for line in lines if f"`{algorithm.name}`" in line and f"step `{step}`" in line]
        reported = re.findall(r"`(\w+)` (?:float|int)64", line)
        assert reported == list(steps[step].schema.fields)


def test_the_generator_notices_a_missing_marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate = generator()
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("<!-- algorithms -->\n")
    with pytest.raises(ValueError, match="<!-- /algorithms --> once"):
        generate.rendered("README.md")


@pytest.mark.parametrize("algorithm", BUILT_IN, ids=lambda a: a.name)
def test_every_algorithm_has_a_page_with_its_parameters(algorithm: Algorithm) -> None:
    page = f"docs/algorithms/{algorithm.name}.md"
    assert "parameters" in generator().BLOCKS[page]
    for name, field in algorithm.params_class().model_fields.items():
        assert f"| `{name}` |" in text_of(page) or name in GENERAL
        assert expected(field), f"the type of {name} has no words"
        assert (field.description or "").endswith("."), f"{name} has no line that says what it is"


def test_the_first_table_of_the_choice_has_every_algorithm_for_equal_columns() -> None:
    table = text_of("docs/which-algorithm.md").partition("\n## ")[0]
    assert not [one.name for one in BUILT_IN if not one.partial and f"(algorithms/{one.name}.md)" not in table]
    instead = text_of("docs/limits.md").partition("| you need | use instead |")[2].partition("\n\n")[0]
    assert all(f"(algorithms/{name}.md)" in instead for name in ("tree", "gmm", "ffcm"))


def test_the_page_of_contents_leads_to_every_page() -> None:
    listed = {(ROOT / "docs" / target).resolve() for target in links("docs/contents.md")}
    pages = {path.resolve() for end in ("md", "ipynb") for path in (ROOT / "docs").rglob(f"*.{end}")}
    assert pages - {(ROOT / "docs" / "contents.md").resolve()} <= listed


def test_the_home_page_fits_on_a_screen() -> None:
    prose = re.sub(r"\]\([^)]*\)", "]", text_of("docs/index.md"))
    assert len(re.findall(r"[\w'-]+", prose)) <= 300
    federated = sum(algorithm.federated for algorithm in BUILT_IN)
    assert f"{federated} federated algorithms" in prose


# Links


def links(page: str) -> list[str]:
    """Return the targets of a page's relative links, code left out."""
    prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`(?!\])", "", prose))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_every_relative_link_resolves(page: str) -> None:
    for target in links(page):
        file, _, anchor = target.partition("#")
        there = (ROOT / page).parent / file if file else ROOT / page
        assert there.exists(), f"{page} links to {target}, which does not exist"
        assert not anchor or anchor in anchors(there), f"{page} links to {target}, which has no such heading"


def test_links_are_found_at_all() -> None:
    assert {"LICENSE", "docs/deploy.md", "docs/limits.md#privacy", "docs/images/kfed_grid16.png"} <= set(
        links("README.md")
    )


# Commands


def commands(page: str) -> list[str]:
    """Return the command lines of flareclust in a page's fenced blocks of all languages, in one line each."""
    shown = re.findall(r"^ *```\w*\n(.*?)^ *```$", text_of(page), flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in shown for line in block.replace("\\\n", " ").splitlines()]
    return [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?flareclust (?!\d)", line)]


def mentions(page: str) -> list[str]:
    """Return the command lines of flareclust in a page's inline code, which may leave out arguments: `flareclust run ...`."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    return [line for line in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose) if re.match(r"flareclust [a-z-]", line)]


def resolved(line: str) -> tuple[Any, list[str]]:
    """Return the command that a line names, or a group of commands, and the words behind its name."""
    words = shlex.split(line, comments=True)[1:]
    command = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    return command, words


def parse(line: str) -> None:
    """Parse a command line as the program would, without running it."""
    command, words = resolved(line)
    command.make_context("flareclust", words)


def name_options(line: str) -> None:
    """Check that the command of a line exists, with each option that the line has."""
    command, words = resolved(line)
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    for word in words:
        name = word.partition("=")[0].strip("[]")
        assert not name.startswith("-") or name in {*known, "--help"}, f"no such option: {name} of {line}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_every_printed_command_exists(page: str) -> None:
    for line in commands(page):
        parse(line)


@pytest.mark.parametrize("page", [page for page in PAGES if mentions(page) and page != "CHANGELOG.md"])
def test_every_command_in_prose_exists_with_its_options(page: str) -> None:
    for line in mentions(page):
        name_options(line)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_printed_python_imports_what_there_is(page: str) -> None:
    """Of this repository; CONTRIBUTING.md prints the modules of its example."""
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block)):
            if not isinstance(node, ast.ImportFrom) or not re.match(r"(flareclust|benchmarks)\b", str(node.module)):
                continue
            if ".stacked" in str(node.module):
                continue
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                found = hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}")
                assert found, f"{node.module} has no {alias.name}"


PROGRAMS = sorted({text for page in PAGES for text in re.findall(r"python3? -c \"([^\"]+)\"", text_of(page))})


@pytest.mark.parametrize("text", PROGRAMS)
def test_every_printed_program_of_one_line_runs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "kits" / "clinics" / "state"
    state.mkdir(parents=True)
    (state / "cert.json").write_text('{"clinic-c": 1, "clinic-d": 2}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(text, {})


def test_programs_of_one_line_are_found_at_all() -> None:
    assert any("warm_up" in text for text in PROGRAMS)


def command_names(group: Any, prefix: str = "flareclust") -> list[str]:
    """Return all commands of a group, those of its groups included."""
    names = []
    for name, inner in group.commands.items():
        below = f"{prefix} {name}"
        names += command_names(inner, below) if hasattr(inner, "commands") else [below]
    return names


def test_every_command_is_on_the_page_of_commands() -> None:
    names = command_names(typer.main.get_command(app))
    assert len(names) >= 16
    lines = [line for line in text_of("docs/commands.md").splitlines() if line.startswith("| `flareclust ")]
    for name in names:
        assert any(f"`{name}" in line for line in lines), name


@pytest.mark.parametrize("line", ["flareclust runn feca", "flareclust run feca --client 3", "flareclust data get"])
def test_wrong_command_lines_are_noticed(line: str) -> None:
    with pytest.raises(Exception, match=r"no command|[Nn]o such option|[Mm]issing"):
        parse(line)


@pytest.mark.parametrize("line", ["flareclust runn ...", "flareclust run ... --client", "flareclust site chek KIT"])
def test_wrong_commands_in_prose_are_noticed(line: str) -> None:
    with pytest.raises(AssertionError, match=r"no command|no such option"):
        name_options(line)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")])
def test_printed_python_compiles(page: str) -> None:
    for block in blocks(page, "python"):
        compile(block, page, "exec")


def test_the_python_of_the_readme_and_of_its_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but what starts NVFlare or MLflow; one after the other, as a reader would."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    pages = ("README.md", "docs/python.md")
    ran = [block for page in pages for block in blocks(page, "python") if "nvflare" not in block]
    assert len(ran) == 10
    for block in ran:
        exec(block, names)
    result, again = names["result"], names["again"]
    assert isinstance(result, flareclust.Result)
    assert isinstance(again, flareclust.Result)
    assert result.site_labels["north"].shape == (350,)
    np.testing.assert_array_equal(result.labels, again.labels)
    assert getattr(names["selected"], "k", None) == 3
    assert (tmp_path / "picture.png").exists()
    assert (tmp_path / "choice.png").exists()
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "disclosure.json",
        "labels.csv",
        "picture.png",
        "report.html",
        "result.json",
        "result.npz",
        "rounds.jsonl",
    }


def test_the_readmes_first_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    exec(blocks("README.md", "python")[0], {})
    assert capsys.readouterr().out == blocks("README.md", "text")[0]


def test_the_framework_of_a_readers_own_gets_what_the_engine_gets(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(blocks("docs/other-frameworks.md", "python")[0], names)
    assert capsys.readouterr().out == "(3, 2)\n"
    found = names["run_federation"](names["aggregator"], names["ask"], list(names["rows"])).centroids
    np.testing.assert_array_equal(found, flareclust.run("pooled", names["rows"], 3).centroids)


@of_the_whole
def test_the_readme_is_short_and_counts_the_algorithms() -> None:
    text = text_of("README.md")
    assert len(text.splitlines()) <= 220
    assert f"{sum(algorithm.federated for algorithm in BUILT_IN)} federated algorithms" in text


# Versions


def test_citation_and_changelog_name_this_version() -> None:
    """Between releases the number is that of a development version, and both name the release before it."""
    citation, number = yaml.safe_load(text_of("CITATION.cff")), Version(flareclust.__version__)
    released = re.findall(r"^## \[(\S+)\] - (\S+)$", text_of("CHANGELOG.md"), re.MULTILINE)
    assert (citation["version"], str(citation["date-released"])) == released[0]
    assert Version(citation["version"]) < number if number.is_devrelease else citation["version"] == str(number)


def test_quoted_refusals_of_another_version_are_those_of_the_code() -> None:
    needed, own = f"0.4.0+{'0' * 12}", f"0.3.0+{'1' * 12}"
    with pytest.raises(Refusal) as refused:
        nvflare_executor._check_version(needed, own)
    page, lead = text_of("docs/versions.md"), text_of("docs/operations-lead.md")
    assert f"\nleft out: clinic-d {refused.value}\n" in page
    assert f"(min_sites). clinic-d {refused.value}\n" in page
    assert f"\nerror: the server {misfit(needed, own)}\n" in page
    assert f"`{misfit(needed.replace('4', '3'), own)}`" in page
    assert f"`clinic-d {misfit(needed, own)}`" in lead


# The worked example of CONTRIBUTING.md


@pytest.fixture
def stacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    """The example's two files in a package of their own, and its line of the registry."""
    site, server, line, _ = blocks("CONTRIBUTING.md", "python")
    package = tmp_path / "stacked_example"
    package.mkdir()
    (package / "__init__.py").touch()
    for name, text in {"executor.py": site, "aggregator.py": server}.items():
        text = text.replace("flareclust.executors.stacked", "stacked_example.executor")
        (package / name).write_text(text, encoding="utf-8")
    line = line.replace("flareclust.executors.stacked", "stacked_example.executor")
    line = line.replace("flareclust.aggregators.stacked", "stacked_example.aggregator")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    for module in [name for name in sys.modules if name.startswith("stacked_example")]:
        monkeypatch.delitem(sys.modules, module)
    algorithm = eval(line, {"Algorithm": Algorithm})
    assert isinstance(algorithm, Algorithm)
    return algorithm


def test_the_worked_example_keeps_all_promises(stacked: Algorithm) -> None:
    check_algorithm(stacked)


def test_the_worked_examples_own_test_passes(stacked: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "BUILT_IN", (*BUILT_IN, stacked))
    names: dict[str, object] = {"np": np}
    exec(blocks("CONTRIBUTING.md", "python")[3], names)
    test = names["test_one_site_with_everything_is_plain_kmeans"]
    assert callable(test)
    test()

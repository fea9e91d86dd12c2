"""The notebooks of the documentation: each runs in an empty folder and prints what it says it prints."""

import contextlib
import copy
import os
import re
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook

import flareclust
from benchmarks.pages.notebooks import NOTEBOOKS, executed
from tests.contracts.test_words import STANDARD

FILES = sorted(NOTEBOOKS.glob("*.ipynb"))

#: A cell with this tag may print something else each time: under differential privacy noise follows no seed.
VARIES = "varies"


def shown(cell: NotebookNode) -> list[tuple[str, str]]:
    """Return the outputs of a cell: kind and text, pictures without their bytes, and not what a first run says of compiling."""
    outputs = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream" and not output.text.startswith("compiling the numeric kernels"):
            outputs.append((str(output.name), str(output.text)))
        for kind, text in output.get("data", {}).items():
            outputs.append(
                (kind, "" if kind == "image/png" else re.sub(r"data:image/png;base64,[^\"]+", "", str(text)))
            )
    return outputs


def assert_same(committed: NotebookNode, again: NotebookNode) -> None:
    """Compare outputs cell by cell; of cells that vary the kinds of what they show, printed text aside."""
    for number, (before, after) in enumerate(zip(committed.cells, again.cells, strict=True), 1):
        if VARIES in before.metadata.get("tags", []):
            kinds = [{kind for kind, _ in shown(cell) if "/" in kind} for cell in (before, after)]
            assert kinds[0] == kinds[1], f"cell {number}"
        else:
            assert shown(before) == shown(after), f"cell {number}: run `python -m benchmarks.pages.notebooks`"


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=pytest.mark.smoke if file in FILES[:2] else ()) for file in FILES],
    ids=lambda f: f.stem,
)
def test_a_notebook_runs_and_prints_what_it_holds(file: Path, tmp_path: Path) -> None:
    assert_same(nbformat.read(file, as_version=4), executed(file, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("last", ["pass", "1 / 0"])
def test_the_kernel_ends_with_the_run_and_a_cell_that_raises_ends_it(last: str, tmp_path: Path) -> None:
    source = f"import os\nfrom pathlib import Path\nPath('pid').write_text(str(os.getpid()))\n{last}"
    nbformat.write(new_notebook(cells=[new_code_cell(source)]), tmp_path / "one.ipynb")
    raises = (
        pytest.raises(CellExecutionError, match="ZeroDivisionError") if last == "1 / 0" else contextlib.nullcontext()
    )
    with raises:
        executed(tmp_path / "one.ipynb", tmp_path)
    pid = int((tmp_path / "pid").read_text())
    assert pid != os.getpid()
    assert not psutil.pid_exists(pid)


def test_another_output_is_noticed_unless_the_cell_varies() -> None:
    committed = nbformat.read(FILES[-1], as_version=4)
    again = copy.deepcopy(committed)
    (varying, fixed) = (
        next(c for c in again.cells if c.get("outputs") and (VARIES in c.metadata.get("tags", [])) is varies)
        for varies in (True, False)
    )
    varying.outputs[0]["text"] = "another number"
    assert_same(committed, again)
    fixed.outputs[0]["text"] = "inertia 1"
    with pytest.raises(AssertionError, match="cell 4: run"):
        assert_same(committed, again)


def test_they_are_numbered_and_say_so_in_their_titles() -> None:
    assert len(FILES) == 3
    for number, file in enumerate(FILES, 1):
        assert file.name.startswith(f"{number:02}-")
        title = nbformat.read(file, as_version=4).cells[0].source
        assert title.startswith(f"# {number} ")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_committed_is_small_and_holds_nothing_of_the_machine(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text) < 300_000
    assert not re.search(r"/tmp/|/home/|/root/|site-packages|\.venv", text)
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), "run from top to bottom"
    assert notebook.metadata["language_info"] == {"name": "python"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_cells_are_short_and_use_public_names_and_standard_words(file: Path) -> None:
    cells = nbformat.read(file, as_version=4).cells
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    assert all(len(cell.source.splitlines()) <= 25 for cell in cells)
    assert max(map(len, code.splitlines())) <= 80, "longer lines are cut off on the site"
    assert set(re.findall(r"\bflareclust\.(\w+)", code)) <= set(flareclust.__all__)
    assert "from flareclust" not in code
    for word, standard in STANDARD.items():
        flags = 0 if word[0].isupper() or "_" in word else re.IGNORECASE
        found = re.search(rf"(?<!\w)(?:{word})(?!\w)", "\n".join(cell.source for cell in cells), flags)
        assert not found, f"write {standard} instead of {found}"

"""`python -m benchmarks.pages.notebooks [NUMBER ...]`: run the notebooks in docs/notebooks/ and write their outputs into them.

Outputs are kept as text, HTML and PNG. Where an output has HTML or a picture, its plain text is left out: that of a result
holds seconds, which no two runs share.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from traitlets.config import Config

NOTEBOOKS = Path(__file__).resolve().parent.parent.parent / "docs" / "notebooks"

#: Seconds that a cell may take on a busy machine.
PATIENCE = 600


def executed(file: Path, folder: Path) -> NotebookNode:
    """Return a notebook with the outputs of a fresh kernel, which ends before this returns.

    Args:
        file: the notebook.
        folder: existing folder, where its cells run and write their files.

    Raises:
        CellExecutionError: a cell raises.
    """
    notebook = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as state:  # what kernels and accounts otherwise keep in the user's home
        client = NotebookClient(
            notebook,
            config=Config(KernelManager={"transport": "ipc", "connection_file": f"{state}/kernel.json"}),
            timeout=PATIENCE,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}},
        )
        environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
        environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        client.execute(env=environment | {"IPYTHONDIR": state, "XDG_STATE_HOME": state})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell["outputs"] = [_kept(output) for output in cell.outputs]
    notebook.metadata["language_info"] = {"name": "python"}  # without the version that ran it
    return notebook


def _kept(output: NotebookNode) -> NotebookNode:
    """Return an output without what a terminal adds to it, and without plain text beside HTML or a picture."""
    if output.output_type == "stream":
        output["text"] = re.sub(r"\x1b\[[0-9;]*m|\r(?=\n)", "", output.text)
    elif {"text/html", "image/png"} & set(output.get("data", {})):
        output["data"].pop("text/plain", None)
    return output


def main(numbers: list[str]) -> int:
    """Run all notebooks, or those whose names begin with one of the numbers."""
    chosen = [file for file in sorted(NOTEBOOKS.glob("*.ipynb")) if file.name.startswith(tuple(numbers) or "")]
    if not chosen:
        print(f"no notebook in {NOTEBOOKS} begins with {' or '.join(numbers)}", file=sys.stderr)
    for file in chosen:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(file, Path(folder)), file)
    return 0 if chosen else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""MkDocs hook: each notebook in docs/ is a page, made of its cells and the outputs that it holds; nothing runs.

Markdown cells are the page's text, so links in them are checked like all others. The notebook itself lies beside its page.
"""

import posixpath
import re
from html import escape
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbformat import NotebookNode

_OUTPUT = (
    '<div class="no-copy" style="border-left: .15rem solid var(--md-primary-fg-color--light); padding-left: .6rem"'
)

#: The theme leaves tables alone that have a class, as those of pandas have.
_TABLE = re.compile(
    r'<style.*?</style>|(?<=<table) border="1" class="dataframe"| style="text-align: right;"', re.DOTALL
)


#: Characters that a line of code has room for beside the navigation.
_WIDE = 78


class NotebookFile(File):
    """A notebook that is a page."""

    def is_documentation_page(self) -> bool:
        """Return True: by the ending it would be none."""
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Turn notebooks into pages, and add each as a file to download."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
        files.append(NotebookFile.generated(config, file.src_uri, abs_src_path=file.abs_src_path))
        files.append(File.generated(config, _download(file.src_uri), abs_src_path=file.abs_src_path))
    return files


def on_page_read_source(page: Page, config: MkDocsConfig) -> str | None:
    """Return the Markdown of a notebook; None for other pages, which MkDocs reads."""
    if not page.file.src_uri.endswith(".ipynb"):
        return None
    link = posixpath.relpath(_download(page.file.src_uri), posixpath.dirname(page.file.src_uri))
    notebook = nbformat.read(Path(str(page.file.abs_src_path)), as_version=4)
    return "\n\n".join([*map(_cell, notebook.cells), f"[Download this notebook]({link})"])


def _download(uri: str) -> str:
    return posixpath.join(posixpath.dirname(uri), "files", posixpath.basename(uri))


def _cell(cell: NotebookNode) -> str:
    if cell.cell_type == "markdown":
        return str(cell.source)
    language = "text" if cell.source.startswith("%%") else "python"
    return "\n\n".join([f"````{language}\n{cell.source}\n````", *map(_output, cell.outputs)])


def _output(output: NotebookNode) -> str:
    data = output.get("data", {})
    if "text/html" in data:
        return f"{_OUTPUT}>{_TABLE.sub('', data['text/html'])}</div>"
    if "image/png" in data:
        return (
            f'{_OUTPUT}><img alt="the plot of this cell" src="data:image/png;base64,{data["image/png"].strip()}"></div>'
        )
    text = output.text if output.output_type == "stream" else data["text/plain"]
    wrapped = "pre-wrap" if max(map(len, text.splitlines()), default=0) > _WIDE else "pre"  # sentences, and not tables
    return f'{_OUTPUT}><pre style="margin: 0"><code style="white-space: {wrapped}">{escape(text.rstrip())}</code></pre></div>'

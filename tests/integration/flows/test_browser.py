"""Pages in a real browser: the links that we print show the runs, and reports and comparisons what they should.

FLARECLUST_SCREENSHOTS=docs/images writes the documentation's screenshots.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
from html import escape
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from pypdf import PdfReader

from tests.mlflow_server import free_port, process_group, wait_until_healthy
from tests.paths import ROOT
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

#: Names of Chromium, as distributions install it.
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


#: The folder for screenshots, such as docs/images; by default they are only looked at.
SHOTS = "FLARECLUST_SCREENSHOTS"

#: The files that the tutorial has its reader write.
SCHEMA = """missing: drop-rows
columns:
  patient: {type: id}
  seen_on: {type: ignore}
  age: {type: number, unit: years, range: [0, 120]}
  crp: {type: number, unit: mg/l, range: [0, 500]}
  tumour: {type: number, unit: mm, range: [1, 200]}
  sex: {type: category, values: [f, m]}
  stage: {type: ordered, values: [I, II, III]}
  diagnosis: {type: ignore}
"""
SOUTH = "columns:\n  tumour: {factor: 10}\n"
WEST = """encoding: latin-1
decimal: ","
missing: [k.A.]
columns:
  patient: Fallnr
  age: Alter
  crp: CRP
  tumour: Größe
  sex: {from: Geschlecht, values: {w: f}}
  stage: Stadium
  diagnosis: Diagnose
"""


class Browser:
    """Opens pages, each time as a new reader."""

    def __init__(self, command: str, folder: Path) -> None:
        self._command, self._folder, self._opened = command, folder, 0

    def text_of(self, url: str) -> str:
        """Return the page after its programs have run."""
        return self._run("--dump-dom", url)

    def shot(self, url: str, name: str, width: int, height: int) -> Path:
        """Keep what a window of this size shows as a PNG of few colours; return the file."""
        raw = self._folder / "raw.png"
        self._run(f"--screenshot={raw}", f"--window-size={width},{height}", "--hide-scrollbars", url)
        folder = Path(os.environ.get(SHOTS, self._folder))
        with Image.open(raw) as image:
            image.convert("RGB").quantize(96).save(folder / name, optimize=True)
        return folder / name

    def sideways(self, page: Path, width: int, part: str = "html") -> int:
        """Return how far a page, or the first such part of it, scrolls sideways on a screen so wide.

        It is in a frame, as no window is as narrow as a phone.
        """
        frame = f'<iframe id="page" width="{width}" height="800" style="border:0" srcdoc="{escape(page.read_text(encoding="utf-8"))}">'
        found = f"page.contentDocument.querySelector('{part}')"
        measured = f"page.contentWindow.innerWidth + ' ' + ({found}.scrollWidth - {found}.clientWidth)"
        outer = self._folder / "outer.html"
        outer.write_text(
            f"<!doctype html><title></title>{frame}</iframe><script>page.onload = () => document.title = {measured}</script>",
            encoding="utf-8",
        )
        ((inner, found),) = re.findall(r"<title>(\d+) (\d+)</title>", self.text_of(outer.as_uri())[:200])
        assert int(inner) == width
        return int(found)

    def printed(self, url: str) -> list[str]:
        """Return the text of each sheet that the page makes on paper."""
        file = self._folder / "printed.pdf"
        self._run("--no-pdf-header-footer", f"--print-to-pdf={file}", url)
        return [unicodedata.normalize("NFKC", sheet.extract_text()) for sheet in PdfReader(file).pages]

    def _run(self, *words: str) -> str:
        self._opened += 1
        command = [self._command, "--headless", "--no-sandbox", "--disable-gpu"]
        command += [f"--user-data-dir={self._folder}/{self._opened}", "--virtual-time-budget=20000", "--timeout=60000"]
        return subprocess.run([*command, *words], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


@pytest.fixture
def browser(tmp_path_factory):
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine; apt-get install chromium")
    return Browser(found, tmp_path_factory.mktemp("browser"))


@pytest.fixture
def ui(tmp_path, monkeypatch):
    """Start the pages of an MLflow store of the test's own; give what turns a printed link into one to them."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)

    @contextlib.contextmanager
    def started():
        port = free_port()
        command = [sys.executable, "-m", "flareclust", "ui", "--port", str(port)]
        with process_group(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
        ) as process:
            wait_until_healthy(process, f"http://127.0.0.1:{port}")
            yield lambda page: page.replace(":5000/", f":{port}/")

    return started


def is_drawn(file: Path) -> bool:
    """Return whether a screenshot shows something, and is small enough for the documentation."""
    with Image.open(file) as image:
        return len(image.convert("RGB").getcolors(maxcolors=100_000)) > 20 and file.stat().st_size < 150_000


@pytest.mark.nightly
def test_the_printed_links_open_the_runs_and_what_they_came_to(browser, ui):
    import flareclust

    result = flareclust.run("feca", data="iris", n_sites=3, track=True)
    with ui() as here:
        page = here(result.run_page)
        run = browser.text_of(page)
        runs = browser.text_of(page.replace(f"/runs/{result.run_id}", "/runs"))
    assert "feca/iris/k3/iid/s0" in run
    assert "3 of 3 centroids from 3 sites" in run
    assert run.index("final/inertia") < run.index("round/received")
    assert "feca/iris/k3/iid/s0" in runs
    assert "Training runs" not in runs  # the sidebar of the pages for language models


@pytest.mark.nightly
def test_the_comparison_of_four_runs_names_runs_settings_and_metrics(browser, ui):
    import flareclust

    algorithms = ("portfolio", "feca", "kfed", "lloyd")
    results = [flareclust.run(one, data="iris", k=3, n_sites=3, track=True) for one in algorithms]
    runs = json.dumps([result.run_id for result in results], separators=(",", ":"))
    asked = urlencode({"runs": runs, "experiments": '["1"]', "workflowType": "machine_learning"})
    with ui() as here:
        base = here(results[0].run_page).partition("#")[0]
        text = browser.text_of(f"{base}#/compare-runs?{asked}")
    assert "Comparing 4 Runs from 1 Experiment" in text
    assert all(f"{one}/iris/k3/iid/s0" in text for one in algorithms)
    names = ("final/inertia", "final/simplified_silhouette", "final/ari", "cost/bytes_up", "cost/seconds_total")
    assert all(name in text for name in names)
    assert f"{results[0].metrics['inertia']:.4g}" in text  # further columns are drawn where the window is wide enough
    assert "None" not in text  # settings without a value are not logged


def test_the_pages_of_the_three_hospitals_and_the_documentations_pictures_of_them(browser, ui, tmp_path):
    import flareclust

    subprocess.run([sys.executable, ROOT / "examples" / "hospitals" / "make.py", "data"], cwd=tmp_path, check=True)
    for name, text in {"schema.yaml": SCHEMA, "data/south.mapping.yaml": SOUTH, "data/west.mapping.yaml": WEST}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    settings = {"data": "data", "k": 3, "partition": "none", "schema": "schema.yaml", "track": True}
    first = flareclust.run("portfolio", **settings)
    second = flareclust.run("portfolio", **settings, seed=3, match_to=f"runs:/{first.run_id}")
    report = Path(second.centroids_file).with_name("report.html").as_uri()
    text = browser.text_of(report)
    assert "Since the earlier run" in text
    assert "much higher" in text
    assert is_drawn(browser.shot(report, "report.png", 1100, 1250))
    with ui() as here:
        assert "what is special about it" in browser.text_of(here(second.run_page))
        assert is_drawn(browser.shot(here(second.run_page), "mlflow_run.png", 1280, 1000))


def test_the_page_of_a_sweep_shows_clusters_side_by_side(browser, tmp_path):
    from flareclust.studies.sweeps import sweep

    made = {"name": "iris", "data": "iris", "algorithms": ["lloyd", "feca", "kfed"], "seeds": 3, "n_sites": 3}
    sweep(made, track=False, out=tmp_path / "sweep")
    page = (tmp_path / "sweep" / "compare.html").as_uri()
    assert "The same clusters in each cell" in browser.text_of(page)
    assert is_drawn(browser.shot(page, "compare.png", 860, 1950))


def test_a_report_can_be_read_on_a_phone_and_on_paper(browser, tmp_path):
    """With many sites and clusters, and long names, of which one site has a column in inches."""
    import flareclust

    rng = np.random.default_rng(0)
    centers, names = rng.normal(0, 10, (14, 12)), [f"a_column_with_a_long_name_{j}" for j in range(12)]
    sites = {
        f"hospital-of-the-holy-{i:02d}": pd.DataFrame(
            centers[rng.integers(0, 14, 60)] + rng.normal(size=(60, 12)), columns=names
        )
        for i in range(20)
    }
    sites["hospital-of-the-holy-03"][names[2]] *= 25.4
    result = flareclust.run("portfolio", sites, 14, scale="standard", compare="spread", out=tmp_path / "out")
    report = tmp_path / "out" / "report.html"
    for width in (1280, 390):
        assert browser.sideways(report, width) == 0
    sheets = browser.printed(report.as_uri())
    assert len(sheets) > 0
    words = "".join("".join(sheets).split())
    assert result.warnings
    for text in ("Read this first", *result.warnings, "How to repeat it"):
        assert text.replace(" ", "") in words


def test_the_means_of_three_clusters_are_all_to_be_seen_on_a_phone(browser, tmp_path):
    import flareclust

    flareclust.run("lloyd", "iris", 3, n_sites=3, engine="inprocess", out=tmp_path / "out")
    assert browser.sideways(tmp_path / "out" / "report.html", 390, ".wide:has(> table.heat)") == 0


def test_the_page_of_a_federation_can_be_read_on_a_phone_and_on_paper_and_names_in_it_do_nothing(browser, tmp_path):
    from flareclust.experiment.reports.federation import status_page
    from flareclust.platform.status import FederationStatus, JobStatus, SiteStatus

    attack = (
        "</td></table><script>document.title = 'attacked'</script><img src=x onerror=\"document.title = 'attacked'\">"
    )
    hospitals = [f"hospital-of-the-holy-and-undivided-{i:02d}" for i in range(40)]
    sites = [SiteStatus(name, True, 1e9, "2.9.0", "0.3.0.dev1", 4102444800.0) for name in (*hospitals, attack)]
    sites.append(SiteStatus("away" * 20, False, None, "", "", None, expected=attack))
    refusals = [f"{name}: is not authorized" for name in hospitals]
    jobs = [
        JobStatus(f"{i}" * 36, attack, "lead@hub.org", 1e9, "0:01:00", "FINISHED:ABORTED", refusals) for i in range(5)
    ]
    ends = {"lead@hub.org": 4102444800.0, "server": 4102444800.0}
    page = tmp_path / "federation.html"
    page.write_text(status_page(FederationStatus("clinics at hub:8002", 1e9, "2.9.0", ends, sites, jobs, [attack])))
    assert "<title>Federation clinics at hub:8002</title>" in browser.text_of(page.as_uri())
    for width in (1280, 390):
        assert browser.sideways(page, width) == 0
    words = "".join("".join(browser.printed(page.as_uri())).split())
    for text in ("Read this first", attack, hospitals[-1], refusals[-1], "flareclust site budget KIT"):
        assert text.replace(" ", "") in words

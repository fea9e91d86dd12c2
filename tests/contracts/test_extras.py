"""What is said, and what still works, where an optional package is not installed."""

import importlib.util
import subprocess
import sys

import pytest

import flareclust
from flareclust._foundation.extras import _EXTRAS, installed, require
from flareclust.cli.main import main


@pytest.fixture
def without(monkeypatch):
    """Make packages look as if they were not installed."""

    def leave_out(*names):
        find = importlib.util.find_spec
        monkeypatch.setattr(
            "flareclust._foundation.extras.find_spec", lambda name: None if name in names else find(name)
        )

    return leave_out


@pytest.mark.parametrize("extra", _EXTRAS)
def test_everything_is_installed_where_tests_run(extra):
    assert installed(extra)
    require(extra, "a test")


def test_the_message_names_the_package_and_the_command(without):
    without("matplotlib")
    assert not installed("plots")
    with pytest.raises(flareclust.UserError, match=r"^a picture needs matplotlib; .*pip install 'flareclust\[plots\]'"):
        require("plots", "a picture")


def test_tracking_without_mlflow_is_refused_before_anything_runs(without, tmp_path, monkeypatch, capsys):
    without("mlflow")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["run", "feca", "--data", "iris", "--n-sites", "3"])
    assert ended.value.code == 2
    assert "--no-track" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_result_without_matplotlib_has_all_but_the_pictures(without, tmp_path):
    without("matplotlib")
    result = flareclust.run("feca", data="iris", n_sites=3, out=tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "disclosure.json",
        "labels.csv",
        "report.html",
        "result.json",
        "result.npz",
        "rounds.jsonl",
    }
    with pytest.raises(flareclust.UserError, match="matplotlib"):
        result.plot()


@pytest.mark.parametrize("package", ["torch", "monai", "kornia"])
def test_networks_without_their_packages_are_refused_in_a_line_and_the_rest_works(without, package):
    without(package)
    with pytest.raises(flareclust.JobFailed, match=rf"deepfeca needs {package}; .*pip install 'flareclust\[deep\]'"):
        flareclust.run("deepfeca", data="digits", k=10, n_sites=2)
    assert flareclust.run("feca", data="iris", n_sites=3).centroids.shape == (3, 4)


def test_nothing_imports_torch_until_a_network_is_used():
    modules = "flareclust, flareclust.cli.main, flareclust.executors.deepfeca, flareclust.aggregators.deepfeca"
    script = f"import sys, {modules}; sys.exit(int(bool(sys.modules.keys() & {{'torch', 'monai', 'kornia'}})))"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Names that users of scikit-learn, NVFlare and Flower type lead to ours."""

import pytest

import flareclust
from flareclust import estimators
from flareclust._foundation.errors import UserError
from flareclust.experiment.config import make_experiment
from flareclust.experiment.sweeps import sweep as sweep_settings

RUN = {
    "n_clusters": "k",
    "random_state": "seed",
    "clients": "n_sites",
    "num_clients": "n_sites",
    "min_clients": "min_sites",
    "partitioner": "partition",
    "timeout": "task_timeout",
}


@pytest.mark.parametrize("name", RUN)
def test_run_names_its_own_word(name):
    with pytest.raises(UserError, match=rf"has no parameter '{name}' \(did you mean '{RUN[name]}'\?\)"):
        flareclust.run("feca", data="iris", **{name: 3})


def test_a_parameter_of_the_algorithm_comes_before_a_setting_of_the_run():
    with pytest.raises(UserError, match=r"did you mean 'rounds'\?"):
        flareclust.run("fkm", data="iris", max_iter=3)


def test_the_share_of_outliers_has_a_name_here():
    with pytest.raises(UserError, match=r"did you mean 'trim_rows'\?"):
        flareclust.run("lloyd", data="iris", outlier_share=0.1)


def test_estimators_and_sweeps_do_so_too():
    with pytest.raises(TypeError, match=r"did you mean 'n_clusters'\?"):
        estimators.FeCA(k=3)
    with pytest.raises(UserError, match=r"did you mean 'n_sites'\?"):
        sweep_settings.Sweep(name="s", data="iris", algorithms=["feca"], num_clients=3)


@pytest.mark.parametrize(
    ("name", "option"), [("seed", "--seed"), ("n_sites", "--n-sites"), ("min_sites", "--min-sites")]
)
def test_an_option_among_the_parameters_is_named_as_one(name, option):
    with pytest.raises(UserError, match=f"has no parameter '{name}': it is an option of its own, {option} or {name}="):
        make_experiment(algorithm="feca", params={name: 3})


def test_progress_and_a_callback_are_not_for_one_run():
    with pytest.raises(UserError, match="leave out one of them"):
        flareclust.run("feca", data="iris", n_sites=3, progress=True, on_round=print)


@pytest.mark.parametrize("name", ["masked", "proxy", "fkm-common", "fkm-imputed"])
@pytest.mark.parametrize(
    ("setting", "advice"),
    [("standardize", "say scale=standard"), ("compare", "by name")],
)
def test_algorithms_for_different_columns_say_what_they_have_instead(name, setting, advice):
    with pytest.raises(UserError, match=f"{name} has no parameter '{setting}': .*{advice}"):
        flareclust.run(name, data="iris", **{setting: "mean"})

"""The settings that users give by name: type, default and meaning of each, once.

The command line, `flareclust._foundation.settings`, the command that repeats a run and hints for wrong names read these tables.
They need no package, so that `flareclust --help` is quick.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


def split_names(text: str) -> tuple[str, ...]:
    """Return the names in "a, b"."""
    return tuple(name.strip() for name in text.split(","))


def _full(path: Path) -> str:
    return str(path.absolute())


class Option(NamedTuple):
    """One setting.

    Attributes:
        kind: its type on the command line.
        help: what it does, in a line.
        default: None where it is known otherwise, or left to others; `...` where there is none.
        flags: on the command line, where they do not follow from the name.
        read: makes the setting of what the command line has.
        metavar: what stands for its value in the help, where that is not its type.
        envvar: the environment variable with its value.
    """

    kind: Any
    help: str
    default: Any = None
    flags: tuple[str, ...] = ()
    read: Callable[[Any], Any] | None = None
    metavar: str | None = None
    envvar: str | None = None

    def flag(self, name: str) -> str:
        """Return the option on the command line, of the setting of this name."""
        return next(iter(self.flags), f"--{name.replace('_', '-')}").partition("/")[0]


#: Those of `flareclust run`, in the order of its help; most are fields of an experiment.
_RUN: Mapping[str, Option] = {
    "data": Option(
        str,
        "A name from `flareclust data list` (with :pca10 its principal components), a file, a folder, a database (sql+sqlite:///FILE, with --query). Not for sites that have their own.",
    ),
    "k": Option(
        str, "Number of clusters, or a range 5..25 to choose from; known for the named data sets.", flags=("--k",)
    ),
    "criterion": Option(
        str,
        "What selects k from a range: calinski-harabasz, silhouette, davies-bouldin, elbow or separation; by default calinski-harabasz. Of gmm also bic, its default, or icl.",
        flags=("--criterion", "--choose-by"),
    ),
    "partition": Option(
        str,
        "iid (the default), dirichlet:0.3, dirichlet-class:0.3, clusters:4, power:1.2, beta:0.1, owners (a site per known owner; --n-sites is not looked at); for different columns features-overlap:0.3, features-shared:0.1, har-a1 ...; or none: --data is a folder with a file, or a folder of images, per site.",
    ),
    "n_sites": Option(int, "Number of sites; 10 by default.", flags=("--n-sites", "--clients")),
    "columns": Option(str, "Columns of the files to use, with commas; all by default.", read=split_names),
    "table_schema": Option(
        Path,
        "Schema by which your own tables are read (flareclust schema draft); NAME.mapping.yaml beside a table says how it differs.",
        flags=("--schema",),
        read=_full,
    ),
    "id_column": Option(
        str, "The column with ids, where no schema says it: no feature, but in labels.csv.", flags=("--id",)
    ),
    "query": Option(str, "With a database sql+...: the SELECT that gives the rows, or the file NAME.sql that has it."),
    "password": Option(str, "With a database sql+...: where the password is, env:NAME or file:PATH."),
    "truth": Option(str, "The column with known classes, to compare the clusters with; no feature."),
    "dry_run": Option(
        bool, "Read all tables, say what they hold or what is wrong, and train nothing.", False, ("--dry-run",)
    ),
    "seed": Option(int, "Decides the partition and every random choice.", 0),
    "threads": Option(
        int, "Threads of a process, by default one for each core. No result depends on it.", envvar="FLARECLUST_THREADS"
    ),
    "engine": Option(
        str,
        "simulator (NVFlare; the default), inprocess, devices (many small sites), poc (see `flareclust poc`), or production.",
        "",
    ),
    "kit": Option(str, "For production: the kit of the admin who submits the job. For poc: its folder."),
    "params": Option(list[str], "A setting of the algorithm.", [], ("--set",), metavar="KEY=VALUE"),
    "min_sites": Option(int, "Sites a round needs; more than half by default."),
    "expect_sites": Option(
        str,
        "For production: names of the sites that should take part, with commas; by default those of your last jobs of this kind.",
        read=split_names,
    ),
    "wait_for": Option(int, "With --for: so many connected sites are enough; by default all expected ones."),
    "wait_seconds": Option(
        int, "For production: seconds to wait for sites before the job is submitted.", flags=("--for",)
    ),
    "task_timeout": Option(int, "Seconds a site has for one task.", 600),
    "secure_sums": Option(bool, "Sites mask their sums; the server learns the total.", False, ("--secure-sums",)),
    "policy": Option(Path, "What simulated sites let out, a YAML file; real sites: flareclust site policy."),
    "profile": Option(
        bool,
        "Describe the clusters column by column; by default where up to 60 columns have names.",
        flags=("--profile/--no-profile",),
    ),
    "match_to": Option(
        str, "Earlier result whose cluster numbers are kept: a folder, runs:/ID, or models:/NAME@champion."
    ),
    "start_from": Option(
        str,
        "Earlier result from whose centroids the run starts, of lloyd, ffcm, gmm or kprototypes: a folder, runs:/ID, or models:/NAME@champion.",
        flags=("--start",),
    ),
    "cohort": Option(int, "Sites drawn for each round, with the engines inprocess and devices; all by default."),
    "dropout": Option(float, "Probability that a site of these engines drops out of a round.", 0.0),
    "title": Option(str, "Title of the report, and of the run's page in MLflow."),
    "row_name": Option(str, "What the report calls rows, in the plural, such as patients.", "rows", ("--unit",)),
    "out": Option(Path, "A new folder for the files; by default one in flareclust-runs."),
    "overwrite": Option(bool, "Replace the result that is in the --out folder.", False, ("--overwrite",)),
    "resume": Option(
        str,
        "Go on with an interrupted run: its folder, with the same settings; for poc and production the id of its job.",
    ),
    "track": Option(bool, "Log the run to MLflow.", True),
    "register_as": Option(str, "Register the model in MLflow under this name.", flags=("--register",)),
    "mlflow_experiment": Option(
        str, "Name of the MLflow experiment; MLFLOW_EXPERIMENT_NAME or flareclust.", flags=("--experiment",)
    ),
    "as_json": Option(bool, "Print one JSON object on stdout and nothing else.", False, ("--json",)),
}


def _of_run(*names: str, **changed: str) -> dict[str, Option]:
    """Return settings of a run for another command, some with another meaning."""
    return {name: _RUN[name]._replace(help=changed.get(name, _RUN[name].help)) for name in names}


#: Those of `flareclust stability`.
_STABILITY: Mapping[str, Option] = {
    **_of_run(
        *("data", "k"),
        data="A name from `flareclust data list`, a file, a folder with a file per site, or a database (sql+sqlite:///FILE, with --query).",
    ),
    "repeats": Option(
        int, "Repeats with other seeds, and again with resampled rows; at most so many sites left out.", 20
    ),
    "null": Option(int, "Runs on rows without clusters to compare with, at least 19; 0 for none.", 0),
    "null_reference": Option(
        str,
        "These rows, several with commas: box (uniform, with the covariance of the real ones), copula (their rank correlations, columns of one mode), permuted (columns).",
        "box,copula",
    ),
    "criterion": Option(str, "What selects k from a range, as in `flareclust run`."),
    "partition": Option(str, "How rows are assigned to sites, as in `flareclust run`; iid by default."),
    "n_sites": Option(int, "Number of sites; 10 by default."),
    **_of_run(
        *("columns", "table_schema", "id_column", "query", "password", "truth", "seed", "params"),
        *("secure_sums", "policy", "title", "row_name", "out", "overwrite", "as_json"),
        out="A folder for the files of the run; its report.html has the stability.",
    ),
}

#: Those of `flareclust advise`.
_ADVISE: Mapping[str, Option] = {
    "k": Option(str, "The numbers of clusters to try, such as 2..10, or one number.", "2..10", flags=("--k",)),
    "partition": Option(str, "How rows are assigned to sites, as in `flareclust run`; none for a file per site."),
    "n_sites": Option(int, "Number of sites, where one table is split; 5 by default."),
    **_of_run("columns", "table_schema", "id_column", "truth", "seed", "params", "policy", "as_json"),
}

#: Those of `flareclust jobs export`, but for what it writes.
_JOB: Mapping[str, Option] = {
    "k": Option(str, "Number of clusters; of pooled also a range 5..25 to choose from.", ..., ("--k",)),
    **_of_run("criterion", "seed", "params", "min_sites", "task_timeout", "secure_sums"),
    "secure_sites": Option(
        str, "With --secure-sums: the names of all sites whose sums are added up, with commas.", read=split_names
    ),
    "schema": Option(Path, "The schema by which all sites must have read their tables; others take no part."),
    "profile": Option(
        bool,
        "Describe the clusters column by column; by default where --schema has up to 60 features.",
        flags=("--profile/--no-profile",),
    ),
    "byoc": Option(bool, "Copy the code into the job, for sites without flareclust.", False),
}

#: Those of `flareclust fetch`.
_FETCH: Mapping[str, Option] = {
    "kit": Option(str, "Folder of the kit of the lead, or of an admin.", ...),
    **_of_run(
        *("table_schema", "title", "row_name", "expect_sites", "out", "overwrite", "as_json"),
        expect_sites="Names of the sites that should have part in it, with commas; by default those of earlier jobs of its name.",
        table_schema="The schema with which the job was exported; columns get their names from it.",
        out="A new folder for the files; by default flareclust-runs/JOB.",
    ),
}

#: Those of `flareclust personalise`.
_PERSONALISE: Mapping[str, Option] = {
    "data": Option(str, "A data set with classes from `flareclust data list`, or a file.", "digits"),
    "label": Option(
        str, "The column of a file, or of the sites' rows, that holds the class, an integer; `class` by default."
    ),
    "k": Option(int, "Number of clusters, for kfed, ifca and pow-d-kfed.", flags=("--k",)),
    "method": Option(str, "kfed (one-shot clustering, then a model per cluster), ifca, global or local.", "kfed"),
    "model": Option(str, "mlp (the extra deep), or linear, which needs no extra.", "mlp"),
    "devices": Option(int, "Number of devices.", 10),
    "partition": Option(str, "How rows are assigned to devices: iid, dirichlet:0.3, clusters:2, owners ...", "iid"),
    "rounds": Option(int, "Number of rounds.", 50),
    "select": Option(
        str, "Which devices train in a round: all, or --per-round of them by random, pow-d, pow-d-kfed.", "all"
    ),
    "per_round": Option(int, "With --select: how many train in a round; with kfed, in each cluster."),
    "candidates": Option(int, "Of pow-d: how many are asked for their loss; twice --per-round by default."),
    "k_local": Option(int, "k', clusters of a device, for kfed and pow-d-kfed.", 1),
    "scale": Option(str, "none, or standard: columns have mean 0 and variance 1 over all devices.", "none"),
    "averaging": Option(str, "Of ifca: models or gradients.", "models"),
    "lr": Option(float, "Step size.", 0.01),
    "updates": Option(int, "Local updates of a round; of linear, passes over the rows.", 10),
    "batch": Option(int, "Rows of an update of mlp.", 10),
    "hidden": Option(int, "Hidden units of mlp.", 200),
    "test_share": Option(float, "Share of each device's rows held out for tests.", 0.2),
    "seed": _RUN["seed"],
    "engine": Option(
        str, "inprocess; or simulator: NVFlare jobs for the clustering and for each cluster.", "inprocess"
    ),
    "min_sites": Option(int, "Of jobs: sites of a cluster that a round needs; more than half by default."),
    "out": Option(Path, "Folder for the files; by default flareclust-runs/..."),
    "export": Option(
        Path, "Train nothing; write jobs for provisioned sites here: one per cluster, or one of ifca or global."
    ),
    "clusters": Option(
        Path,
        "With --export, for kfed and pow-d-kfed: the folder with the result of `flareclust run kfed` at the sites.",
        read=str,
    ),
    "sites": Option(
        str, "With --export, for ifca and global: the sites' names, with commas; all by default.", read=split_names
    ),
    "classes": Option(int, "With --export: number of classes; by default the largest of a job's sites."),
    "finished": Option(
        list[Path], "Train nothing; write the result of a downloaded job to --out. Once per job of kfed's clusters."
    ),
    "track": Option(bool, "Log the run to MLflow, as by default.", flags=("--track/--no-track",)),
    "as_json": _RUN["as_json"],
}

#: Those of `flareclust assign`.
_ASSIGN: Mapping[str, Option] = {
    "data": Option(Path, "The late site's file, if it is here."),
    "kit": Option(Path, "Where the rows are at the site: the kit of an admin who submits a job for it."),
    "site": Option(str, "The late site's name; with --kit, as it is connected, and several with commas.", "late-site"),
    "new_rows": Option(
        bool, "The site took part in the run, and these are rows that came later.", False, ("--new-rows",)
    ),
    "columns": Option(str, "Columns to use, with commas; those of the result by default.", read=split_names),
    "schema": Option(
        Path, "The schema of the run, by which the file is read; NAME.mapping.yaml beside it says how it differs."
    ),
    "salt": Option(
        str,
        "What the sites hashed the names of their columns with, if they did; in the environment no list of commands shows it.",
        "",
        envvar="FLARECLUST_SALT",
    ),
    "outliers": Option(
        float, "Of gmm and dp-gmm, the expected share of outliers, such as 0.01: a column of labels.csv."
    ),
    "out": Option(Path, "With --data, folder for labels.csv and placed.html; by default the current one."),
}

#: Those of `flareclust site init`.
_SITE_INIT: Mapping[str, Option] = {
    "rows": Option(
        str,
        "The file with the rows, a pattern in quotes, or a database, sql+..., as seen from here; {site} is the site's name.",
        ...,
    ),
    "columns": Option(str, "Columns to use, with commas; all by default.", read=split_names),
    "id_name": Option(str, "The column with ids: no feature, but in the labels file.", flags=("--id",)),
    "root": Option(
        Path, "Folder under which the files must lie, links followed; by default the one --rows names.", read=_full
    ),
    "format": Option(str, "Of the files, where their names do not show it: csv, parquet, ..."),
    "schema": Option(Path, "The federation's schema, in the place of --columns and --id.", read=_full),
    "mapping": Option(
        Path,
        "With --schema: how the files differ from it; by default NAME.mapping.yaml beside the rows, if it is there.",
    ),
    "query": Option(str, "Where --rows is a database, sql+...: the SELECT, or the file NAME.sql with it."),
    "password": Option(str, "Where the password of the database is: env:NAME, or file:PATH."),
}

#: Those of `flareclust site policy`: of the policy, of its differential privacy, and what to do.
_SITE_POLICY: Mapping[str, Option] = {
    "min_rows": Option(int, "With fewer rows the site takes no part."),
    "min_count": Option(int, "Clusters of fewer rows never leave the site."),
    "round_counts": Option(int, "Numbers of rows leave as multiples of this."),
    "max_centroids": Option(int, "Most centroids in one message."),
    "max_rounds": Option(int, "Most exchanges of one job."),
    "max_numbers_per_row": Option(float, "Most numbers in one message for each row, such as 0.33."),
    "max_levels_per_row": Option(float, "Most categories of a column for each row, such as 0.33."),
    "share_rules": Option(bool, "Let the lead see this policy (flareclust site rules)."),
    "arrays": Option(str, "Arrays that may leave, with commas; else any of an algorithm.", read=split_names),
    "secure_sums": Option(bool, "Sums leave masked only."),
    "secure_min_sites": Option(int, "Masked sums are of at least so many sites."),
    "secure_sites": Option(str, "The sites whose masked sums are added up, with commas; else any.", read=split_names),
    "secure_identities": Option(
        str, "Pin sites' own identities: SITE=FINGERPRINT, with commas, all of a site; SITE= takes its pins away."
    ),
    "epsilon": Option(float, "Differential privacy: the most that one job may spend."),
    "delta": Option(float, "Of epsilon and budget; below 1 / number of rows."),
    "budget": Option(float, "The most that all jobs together may spend, as an epsilon."),
    "bounds": Option(str, "Low and high of all columns, with a comma; or a ball, norm=1,center=0."),
    "unit": Option(str, "Whose presence is protected: that of a row, or of an id with all of its rows."),
    "colluding": Option(
        int, "So many sites of a masked sum may tell the server their shares of its noise; else a third."
    ),
    "show": Option(bool, "Say what holds, and change nothing.", False, ("--show",)),
    "remove": Option(bool, "Let each job say what leaves the site.", False, ("--remove",)),
    "sure": Option(bool, "Change min_count without a question.", False, ("--yes",)),
}

#: The settings of commands, by the words behind `flareclust`.
COMMANDS: Mapping[str, Mapping[str, Option]] = {
    "run": _RUN,
    "stability": _STABILITY,
    "advise": _ADVISE,
    "jobs export": _JOB,
    "fetch": _FETCH,
    "personalise": _PERSONALISE,
    "assign": _ASSIGN,
    "site init": _SITE_INIT,
    "site policy": _SITE_POLICY,
}

#: What scikit-learn, NVFlare, Flower and flareclust call the same setting.
SYNONYMS = (
    ("k", "n_clusters", "num_clusters", "n_components"),
    ("seed", "random_state", "random_seed"),
    ("n_sites", "sites", "clients", "n_clients", "num_clients", "num_partitions", "num_supernodes"),
    ("min_sites", "min_clients", "min_fit_clients", "min_available_clients", "min_responses"),
    ("rounds", "max_iter", "num_rounds", "n_rounds", "max_rounds"),
    ("partition", "partitions", "split", "partitioner"),
    ("start", "init"),
    ("trim_rows", "outlier_share", "contamination", "n_outliers"),
    ("task_timeout", "train_timeout", "timeout", "round_timeout"),
    ("engine", "env", "backend"),
    ("out", "workspace", "output"),
)

"""Gaussian mixture, the server's side: maximisation steps from the totals of all sites' expectation steps.

Source: Dempster, Laird, Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm; over sites, whose sums add up,
after Nowak (2003), Distributed EM algorithms for density estimation and clustering in sensor networks, section III. Covariances,
their regularisation and the end of the iterations as in scikit-learn's GaussianMixture.

Readings and deviations:
1. The start: k-means on the centroids of all sites' local clusters, weighted by their rows. The sites then describe the rows nearest
   to each of these k by number, mean and squared deviations: the first mixture has these as weights, means and variances, and no
   correlations. With secure sums there are no local clusters; the k are found by splitting, from totals (`core.split_merge.split`).
2. `rounds` iterations at the most. It stops where the mean log-likelihood of a row changes by less than `tol`. The mixture of the
   result is one whose likelihood the sites have computed: one exchange more than there are iterations, and scikit-learn's last
   maximisation step only where `rounds` ended it.
   With `start=mixtures` each site sends a mixture of its own rows. Rows are drawn from all of them, by their weights, and a mixture of
   these is the first one; with `rounds=0` it is the result, after one exchange that computes its likelihood (Pettersson, Liang,
   Andresen 2025, Federated Gaussian mixture models, arXiv 2506.01780). There the server draws 100 rows or more for each parameter;
   here as many as the sites have, from 2,000 to 20,000.
3. With `k_min` this is done for each number of components up to k, from the same local clusters, and the least `k_criterion` chooses.
4. A component that no site may describe keeps mean and covariance, with a weight next to 0.
5. Log-likelihood, BIC (Schwarz 1978) and ICL (Biernacki, Celeux, Govaert 2000, as BIC plus twice the entropy of the
   responsibilities) are over the rows at sites that describe any component, in the components that each describes: in all of them the
   likelihoods of two mixtures would tell how near a single row is to a narrow component.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from flareclust._foundation.display import all_of
from flareclust._foundation.errors import JobFailed, UserError
from flareclust._foundation.typing import Array, FloatArray, IntArray, Message
from flareclust.core import clusterers, mixtures
from flareclust.core.disclosure import LEAST_ROWS
from flareclust.core.profiles import moments_of_all
from flareclust.core.rounds import remember
from flareclust.core.split_merge import at_once, split
from flareclust.evaluation.scores import stack, unstack
from flareclust.executors import gmm
from flareclust.federation.aggregator import ClusteringAggregator
from flareclust.federation.refinement import SPREAD, totals
from flareclust.protocol.replies import gathered, stacked
from flareclust.protocol.rounds import Round
from flareclust.protocol.sizes import MOMENTS
from flareclust.protocol.state import State

#: Starts of k-means on the sites' centroids.
_STARTS = 20

#: Starts and iterations of mixtures of drawn rows.
_STARTS_OF_DRAWN, _ROUNDS_OF_DRAWN = 5, 200

#: The most numbers of all covariances together, in a message.
_MOST_NUMBERS = 2**22

#: Numbers of a round that warnings are about.
_WARNED_OF = ("held_back", "gain")

#: A variance that is less than this many times `reg_covar` is hardly more than that.
_NEXT_TO = 2.0


@dataclass(frozen=True, eq=False)
class Fitted(State):
    """A mixture whose likelihood the sites have computed, and what a criterion says of it; the least is best."""

    mixture: mixtures.Mixture
    support: FloatArray
    log_likelihood: float
    entropy: float
    value: float
    warned_of: FloatArray  # how many sites held components back, and the gain of the last iteration


@dataclass(frozen=True, eq=False)
class GMMState(State):
    """What the server knows."""

    history: FloatArray | None = None  # the means of the start and of every mixture (r, k, d)
    support: FloatArray | None = None  # the weight behind each component of the last mixture, in rows (k,)
    iterations: int = 0  # so many maximisation steps
    log_likelihood: float | None = None  # of the last mixture that sites have seen, over all rows
    entropy: float | None = None  # of its responsibilities
    found: int = 0  # of a start from totals, the number of clusters so far
    received_centroids: FloatArray | None = None  # the sites' local clusters (c, d)
    received_counts: IntArray | None = None  # their rows (c,)
    tried: FloatArray | None = None  # with `k_min`, the criterion for each number of components from that on (t,)
    best: Fitted | None = None  # the best of them so far
    constant: IntArray | None = (
        None  # with round components, the columns in which the rows of the start hardly vary (c,)
    )


_Round = Round[GMMState]


class GMMAggregator(ClusteringAggregator):
    """The server of a Gaussian mixture.

    Result beside `centroids`, the means: `weights` (k,), `covariances` (k, d, d) or (k, d), in the units of the columns; `factors`,
    Cholesky factors of the covariances in the units in which the columns were scaled; `support` (k,), the rows behind each.
    """

    params: gmm.GMMParams
    executor = gmm.GMMExecutor
    state = GMMState

    def begin(self) -> _Round:
        """Ask for local clusters; for totals with secure sums, or where the means are given."""
        start = self.params.start
        if start == gmm.MIXTURES:
            diagonal = self.params.covariance in ("diag", "spherical")
            return Round(state=GMMState(), step=gmm.FIT_DIAGONAL if diagonal else gmm.FIT)
        if not isinstance(start, str):
            return Round({"centroids": np.array(start)}, state=GMMState(), step=SPREAD)
        return Round(state=GMMState(), step=SPREAD) if self.secure else Round(state=GMMState())

    def merge(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Cluster the centroids of all sites, and ask how the rows spread about the k that are found."""
        sent, _ = gathered(replies.values())
        state = replace(round_.state, received_centroids=sent["centroids"], received_counts=sent["counts"])
        return self._clustered(replace(round_, state=state), self.params.k_min or self.params.k, rng)

    def fitted(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Fit mixtures to rows that are drawn from the sites' mixtures, and start with the best of them."""
        params, sent = self.params, gathered(replies.values())[0]
        check_size(params.covariance, params.k, sent["centroids"].shape[1])
        weights, rows = sent["weights"], float(sent["weights"].sum())
        drawn = mixtures.drawn_rows(weights, sent["centroids"], sent["m2"], params.reg_covar, rng)
        tried: list[float] = []
        best: mixtures.Mixture | None = None
        for k in range(params.k_min or params.k, params.k + 1):
            mixture, value = self._fitted_to(drawn, k, rows, rng)
            if mixture is None or (best is not None and _narrow(mixture, params.reg_covar)[1].size):
                break
            if best is None or value < min(tried):
                best = mixture
            tried.append(value)
        if best is None:
            raise JobFailed(self._collapsed)
        kept = None if params.k_min is None else np.array(tried)
        history = remember(round_.state.history, best.means, params.k)
        state = replace(round_.state, received_centroids=sent["centroids"], tried=kept, history=history)
        state = self._noting(state, weights, sent["centroids"], sent["m2"])
        return Round(self._sent(best), False, {"received": float(len(weights))}, state, gmm.EXPECTATION)

    def spread(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Make the first mixture of the rows about k centroids, or go on to find these."""
        if "candidates" not in round_.task and "centroids" in round_.task:  # given, and in the units of the rows now
            return self._asks_for_spread(round_, round_.task["centroids"], {})
        if self.secure and isinstance(self.params.start, str):
            (total,) = replies.values()
            if (centroids := self._split(round_.state, total)) is not None:
                after = self._asks_for_spread(round_, centroids, {"found": float(len(total["counts"]))})
                return replace(after, state=replace(after.state, found=len(total["counts"])))
        asked = round_.task
        centroids = unstack(asked)[0] if "candidates" in asked else next(iter(replies.values()))["centroids"]
        return self._started(round_, centroids, list(replies.values()))

    def maximize(self, round_: _Round, replies: Mapping[str, Message], rng: np.random.Generator) -> _Round:
        """Return the next mixture, or the end."""
        params, sent = self.params, round_.task
        before = mixtures.received_mixture(sent, params.covariance)
        sums = _totals(list(replies.values()), params.covariance)
        rows = sums.weights.sum()
        if not rows:
            return self._impossible(
                round_,
                "no site has a component that it may describe: each is of too few rows there; lower k, or set covariance=diag",
            )
        mean, last = sums.log_likelihood / rows, round_.state.log_likelihood
        gain = np.inf if last is None or round_.state.support is None else mean - last / round_.state.support.sum()
        state = replace(round_.state, log_likelihood=sums.log_likelihood, entropy=sums.entropy, support=sums.weights)
        described = stacked(list(replies.values()), "weights") > 0
        held_back = float((described.any(axis=0) & ~described).any(axis=1).sum())
        raised = 0.0 if np.isinf(gain) else float(gain)
        diagnostics = {"log_likelihood": float(mean), "held_back": held_back, "gain": raised}
        if state.iterations >= params.rounds or abs(gain) < params.tol:
            return self._ended(replace(round_, diagnostics=diagnostics, state=state), before, rng)
        after = mixtures.maximized(before, sums, params.covariance, params.reg_covar)
        if after is None:
            return self._impossible(round_, self._collapsed)
        state = replace(state, iterations=state.iterations + 1, history=remember(state.history, after.means, params.k))
        return Round(self._sent(after), False, diagnostics, state, round_.step)

    def check_secure(self) -> None:
        """Raise UserError where the sites' own clusters or mixtures are needed."""
        lacks = "which are not sent with secure_sums"
        if self.params.start == gmm.MIXTURES:
            raise UserError(f"start=mixtures needs the sites' own mixtures, {lacks}; take start=kmeans")
        if self.params.k_min is not None:
            raise UserError(f"k_min needs the sites' own clusters, {lacks}; run once for each k")

    def limits(self, round_: _Round) -> dict[str, int]:
        """Return the most entries of a reply: in an iteration those of the mixture that was sent."""
        return {} if round_.step != gmm.EXPECTATION else dict(zip("kd", round_.task["centroids"].shape, strict=True))

    def so_far(self, round_: _Round) -> _Round | None:
        """Return the mixture so far, once sites have seen one."""
        seen = round_.step == gmm.EXPECTATION and round_.state.log_likelihood is not None
        task = {name: value for name, value in round_.task.items() if name != MOMENTS}
        return replace(round_, task=task, done=True) if seen else None

    def result(self, round_: _Round) -> Message:
        """Return the arrays of the result, with covariances in the units of the columns."""
        mixture = mixtures.received_mixture(round_.task, self.params.covariance)
        covariances, unit = mixture.covariances, round_.columns.deviation
        if round_.columns.scales and unit is not None:
            covariances = covariances * (unit**2 if covariances.ndim == 2 else unit[:, None] * unit)
        return {**super().result(round_), "covariances": covariances}

    def metrics(self, round_: _Round) -> dict[str, float | None]:
        """Return the mean log-likelihood of a row, BIC and ICL, where the sites have computed the likelihood of the mixture."""
        state, (k, d) = round_.state, round_.task["centroids"].shape
        if state.log_likelihood is None or state.support is None:
            return {}
        rows = float(state.support.sum())
        bic = mixtures.n_parameters(self.params.covariance, k, d) * np.log(rows) - 2 * state.log_likelihood
        icl = bic + 2 * (state.entropy or 0.0)
        return {"log_likelihood": state.log_likelihood / rows, "bic": float(bic), "icl": float(icl)}

    def warnings(self, round_: _Round, assessed: Mapping[str, Message]) -> list[str]:
        """Name components of few rows, and those that have collapsed, and columns that hardly vary."""
        params, support = self.params, round_.state.support
        mixture = mixtures.received_mixture(round_.task, params.covariance)
        if support is None:
            return []
        found, said = list[str](), list[str]()
        needed = mixtures.n_parameters(params.covariance, 1, mixture.means.shape[1])
        if (tried := round_.state.tried) is not None:
            received = round_.state.received_counts  # k-means makes no more components than it got clusters
            most = params.k if received is None else min(params.k, len(received))
            tried_up_to = (params.k_min or 0) + len(tried) - 1
            if tried_up_to < most:
                found.append(
                    f"numbers of components above {tried_up_to} were not tried: with {tried_up_to + 1} no site has components of enough rows, or one "
                    "collapses onto few values; covariance=diag takes fewer rows"
                )
        if (empty := np.flatnonzero(support < _NONE)).size:
            said.append(
                f"{_components(empty)} no weight: no site describes what is mostly one row repeated, or of too few rows there, though rows far "
                "from the others may have its label; lower k, or take portfolio, which makes a cluster of equal rows"
            )
        if (few := np.flatnonzero((support >= _NONE) & (support < needed))).size:
            said.append(
                f"{_components(few)} fewer rows than the {needed} numbers of a component with covariance={params.covariance}; lower k, or "
                "take covariance=diag or spherical"
            )
        if round_.diagnostics.get("held_back"):
            said.append(
                "sites hold components back and compute the likelihood of their rows without these: that of your mixture is above "
                "log_likelihood, its bic is below the one given, and its icl another one"
            )
        found += ["; ".join(said)] * bool(said)
        if (gain := round_.diagnostics.get("gain", 0.0)) > params.tol:
            found.append(
                f"the iterations had not converged: the last of {params.rounds} raised the mean log-likelihood of a row by {gain:.2g}, and tol is "
                f"{params.tol:g}; set more rounds"
            )
        constant, collapsed = _narrow(mixture, params.reg_covar)
        if round_.state.constant is not None:
            constant = round_.state.constant
        if constant.size:
            or_scale = ", or set scale" if params.scale == "none" else ""
            which = f"columns {all_of(constant.tolist())} vary" if len(constant) > 1 else f"column {constant[0]} varies"
            found.append(
                f"{which} by no more than reg_covar={params.reg_covar:g} in all components; leave out constant columns{or_scale}"
            )
        elif collapsed.size:
            found.append(
                f"{_components(collapsed)} no more variance than reg_covar={params.reg_covar:g} in some column: collapsed onto few "
                "values; lower k, or raise reg_covar"
            )
        elif (
            mixture.factors.ndim == 3
            and (np.linalg.eigvalsh(mixture.covariances)[:, 0] <= _NEXT_TO * params.reg_covar).all()
        ):
            found.append(
                "some columns follow from others, such as the columns of one category, which add up to 1: in some direction no component varies by "
                f"more than reg_covar={params.reg_covar:g}, so likelihood, bic and icl mean nothing; leave out one of these columns, or set "
                "covariance=diag"
            )
        rows = sum(int(reply["counts"].sum()) for reply in assessed.values())
        if rows and support.sum() < _ALL * rows:
            found.append(
                f"the mixture is of {support.sum() / rows:.0%} of the rows: of the others sites may describe no component, or so many are equal "
                "that each counts less"
            )
        return found

    def labelled(self, round_: _Round) -> IntArray | None:
        """Return the rows of each component by probability (k,)."""
        return None if round_.state.support is None else np.rint(round_.state.support).astype(np.int64)

    def _split(self, state: GMMState, total: Message) -> FloatArray | None:
        """Return more clusters than there are, found by splitting; None where there are k, or no more than before."""
        found = len(total["counts"])
        if not found:
            raise JobFailed(f"no site has {LEAST_ROWS} rows, or min_count, that may be described together")
        if found >= self.params.k or found <= state.found:
            return None
        more = min(at_once(self.params.k), self.params.k - found)
        centroids = split(total["centroids"], total["counts"], total["m2"], more)
        return centroids if len(centroids) > found else None

    def _clustered(self, round_: _Round, k: int, rng: np.random.Generator) -> _Round:
        """Cluster the sites' clusters into k, and ask how the rows spread about these."""
        points, counts = round_.state.received_centroids, round_.state.received_counts
        assert points is not None
        assert counts is not None
        rows = counts.astype(np.float64)
        centroids = clusterers.weighted_kmeans(points, rows, min(k, len(rows)), _STARTS, rng)[0]
        return self._asks_for_spread(round_, centroids, {"received": float(len(rows))})

    def _ended(self, round_: _Round, mixture: mixtures.Mixture, rng: np.random.Generator) -> _Round:
        """Return the end, or the start of a mixture with one more component."""
        state, k = round_.state, len(mixture.means)
        if self.params.k_min is None or self.params.start == gmm.MIXTURES:
            return Round(mixture.arrays(), True, round_.diagnostics, state, round_.step)
        assert state.support is not None
        assert state.log_likelihood is not None
        assert state.received_counts is not None
        value = self._criterion(state, mixture, float(state.received_counts.sum()))
        if state.best is not None and _narrow(mixture, self.params.reg_covar)[1].size:
            return self._chosen(round_, state.best)
        warned_of = np.array([round_.diagnostics[name] for name in _WARNED_OF])
        found = Fitted(mixture, state.support, state.log_likelihood, state.entropy or 0.0, value, warned_of)
        best = state.best if state.best is not None and state.best.value <= value else found
        tried = np.append(state.tried if state.tried is not None else np.empty(0), value)
        diagnostics = {**round_.diagnostics, "components": float(k), self.params.k_criterion: value}
        if k < min(self.params.k, len(state.received_counts)):
            state = replace(state, tried=tried, best=best, support=None, log_likelihood=None, iterations=0)
            after = self._clustered(replace(round_, state=state), k + 1, rng)
            return replace(after, diagnostics=diagnostics)
        return self._chosen(replace(round_, diagnostics=diagnostics, state=replace(state, tried=tried)), best)

    def _criterion(self, state: GMMState, mixture: mixtures.Mixture, rows: float) -> float:
        """Return what chooses the number of components, as if of so many rows: sites may have described fewer of one mixture."""
        assert state.support is not None
        assert state.log_likelihood is not None
        icl = 2 * (state.entropy or 0.0) if self.params.k_criterion == "icl" else 0.0
        loss = -2 * state.log_likelihood + icl
        free = mixtures.n_parameters(self.params.covariance, *mixture.means.shape)
        return float(free * np.log(rows) + loss * (rows / state.support.sum()))

    def _chosen(self, round_: _Round, best: Fitted) -> _Round:
        """Return the end, with the best mixture of several numbers of components."""
        state = replace(round_.state, best=None, support=best.support, log_likelihood=best.log_likelihood)
        state = replace(state, entropy=best.entropy, history=remember(state.history, best.mixture.means, self.params.k))
        diagnostics = {**round_.diagnostics, **dict(zip(_WARNED_OF, best.warned_of.tolist(), strict=True))}
        return Round(best.mixture.arrays(), True, diagnostics, state, gmm.EXPECTATION)

    def _impossible(self, round_: _Round, reason: str) -> _Round:
        """Return the best of fewer components, where several numbers are tried; else raise JobFailed for this reason."""
        if round_.state.best is None:
            raise JobFailed(reason)
        return self._chosen(round_, round_.state.best)

    def _asks_for_spread(self, round_: _Round, centroids: FloatArray, diagnostics: Mapping[str, float]) -> _Round:
        """Return the question how the rows spread about centroids (k, d)."""
        centroids = round_.columns.centers(centroids)
        state = replace(round_.state, history=remember(round_.state.history, centroids, self.params.k))
        return Round(stack([centroids]), False, diagnostics, state, SPREAD)

    def _started(self, round_: _Round, centroids: FloatArray, replies: Sequence[Message]) -> _Round:
        """Return the first expectation step, of the rows nearest to each of the centroids (k, d)."""
        params = self.params
        check_size(params.covariance, params.k, centroids.shape[1])
        (known,) = totals([centroids], replies)
        if not known.counts.any():
            return self._impossible(
                round_, "no site has a cluster that it may describe; lower min_count, or ask for fewer clusters (k)"
            )
        mixture = mixtures.started(known.counts, known.means, known.m2, params.covariance, params.reg_covar)
        if mixture is None:
            return self._impossible(round_, self._collapsed)
        history = remember(round_.state.history, known.means, params.k)
        state = replace(round_.state, history=history, found=len(centroids))
        state = self._noting(state, known.counts, known.means, known.m2)
        return Round(self._sent(mixture), state=state, step=gmm.EXPECTATION)

    def _noting(self, state: GMMState, counts: Array, means: FloatArray, m2: FloatArray) -> GMMState:
        """Return the state with the columns in which rows hardly vary, of groups of rows; round components do not show them."""
        if self.params.covariance != "spherical":
            return state
        between = counts @ (means - counts @ means / counts.sum()) ** 2
        constant = np.flatnonzero(m2.sum(axis=0) + between <= self.params.reg_covar * counts.sum())
        return replace(state, constant=constant if constant.size else None)

    def _fitted_to(
        self, drawn: FloatArray, k: int, rows: float, rng: np.random.Generator
    ) -> tuple[mixtures.Mixture | None, float]:
        """Return a mixture of k components of drawn rows (n, d), and the criterion as if they were so many; None where one collapses."""
        params, (n, _) = self.params, drawn.shape
        found, labels = clusterers.weighted_kmeans(drawn, np.ones(n), k, _STARTS_OF_DRAWN, rng)
        start = mixtures.started(*moments_of_all(drawn, labels, len(found)), params.covariance, params.reg_covar)
        if start is None:
            return None, np.inf
        mixture, sums = mixtures.fitted(
            drawn, start, params.covariance, rounds=_ROUNDS_OF_DRAWN, tol=params.tol / 10, reg_covar=params.reg_covar
        )
        state = GMMState(support=sums.weights, log_likelihood=sums.log_likelihood, entropy=sums.entropy)
        return mixture, self._criterion(state, mixture, rows)

    def _sent(self, mixture: mixtures.Mixture) -> Message:
        """Return what the sites are sent of a mixture: it, and how many second moments are asked for."""
        asked = mixtures.n_second_moments(self.params.covariance, *mixture.means.shape)
        return {**mixture.arrays(), MOMENTS: np.array(asked)}

    @property
    def _collapsed(self) -> str:
        return (
            "a component has collapsed: its covariance is not positive definite. Ask for fewer clusters (k), set covariance=diag "
            f"or spherical, or raise reg_covar above {self.params.reg_covar:g}"
        )


def check_size(covariance: mixtures.Covariance, k: int, d: int) -> None:
    """Raise JobFailed where covariances of d columns are more numbers than a message takes."""
    if covariance in ("full", "tied") and k * d * d > _MOST_NUMBERS:
        raise JobFailed(
            f"covariance={covariance} with {d} columns and k={k} has more than {_MOST_NUMBERS} numbers; take diag"
        )


def _totals(replies: Sequence[Message], covariance: mixtures.Covariance) -> mixtures.Sums:
    """Return the sums over all sites, in the order of their names."""
    added = {name: np.sum(stacked(replies, name), axis=0) for name in replies[0]}
    likelihood, entropy = float(added["log_likelihood"]), float(added["entropy"])
    shifts = np.ascontiguousarray(added["shifts"].T)
    m2 = mixtures.unpacked(added["m2"], covariance, *shifts.shape)
    return mixtures.Sums(added["weights"], shifts, m2, likelihood, entropy)


def _narrow(mixture: mixtures.Mixture, reg_covar: float) -> tuple[IntArray, IntArray]:
    """Return the columns in which all components vary by hardly more than `reg_covar`, and the components that do so in others."""
    diagonals = mixture.covariances if mixture.factors.ndim == 2 else np.einsum("kdd->kd", mixture.covariances)
    narrow = diagonals <= _NEXT_TO * reg_covar
    constant = narrow.all(axis=0)
    return np.flatnonzero(constant), np.flatnonzero(narrow[:, ~constant].any(axis=1))


#: Below this share of the rows a mixture is not called one of all; a component of less than that part of a row has no weight.
_ALL, _NONE = 0.99, 0.5


def _components(which: IntArray) -> str:
    return f"components {all_of(which.tolist())} have" if len(which) > 1 else f"component {which[0]} has"

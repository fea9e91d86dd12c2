"""Federated averaging with chosen clients: devices train side by side in this process."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from benchmarks.papers.generators import Federation
from benchmarks.papers.measures import solve
from benchmarks.papers.selection_data import CONTEXT, Population, name_of
from benchmarks.papers.selection_settings import Settings
from flareclust._foundation.seeding import stream
from flareclust._foundation.typing import FloatArray, IntArray
from flareclust.core.client_selection import POW_D_KFED, RANDOM, clusters_by_client, draw, pow_d
from flareclust.personal.local_training import average, make_devices, train
from flareclust.protocol.outcome import names_of_sites
from flareclust.protocol.task import StepName

#: Held-out rows that are computed with at once.
_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class Course:
    """What a training came to.

    Attributes:
        accuracy: (rounds,) share of the held-out rows of all devices that get their own class, after each round.
        devices: (rounds, m) the same by device.
        clusters: (rounds,) how many clusters of k-FED the clients of a round have together.
    """

    accuracy: FloatArray
    devices: FloatArray
    clusters: IntArray


def classifier(columns: int, classes: int) -> nn.Module:
    """Return the network of Cho and others (2020) for images: two hidden layers of 64 and 30 units."""
    sizes = (columns, 64, 30)
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


def next_character(letters: int) -> nn.Module:
    """Return a network from the last ten characters to the next: their embeddings in 8 dimensions, 128 hidden units."""
    return nn.Sequential(
        nn.Embedding(letters, 8), nn.Flatten(-2), nn.Linear(8 * CONTEXT, 128), nn.ReLU(), nn.Linear(128, letters)
    )


def network_of(population: Population, seed: int) -> nn.Module:
    """Return the network for a population, with first weights that depend on the seed only."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, 0, "network").integers(2**31)))
        if population.held_out.dtype.kind == "f":
            return classifier(population.held_out.shape[1], population.n_classes)
        return next_character(population.n_classes)


def clusters_of(population: Population, settings: Settings, seed: int) -> list[list[int]]:
    """Return the clusters of each device by one round of k-FED on the rows that describe it."""
    federation = Federation(population.described)
    params = {"k_local": settings.k_local, "lloyd_rounds": settings.lloyd_rounds}
    outcome = solve("kfed", params, federation, settings.k, seed, assess=False)
    sent = names_of_sites(outcome, StepName.CLUSTER)
    found = clusters_by_client(outcome.arrays["tau"], outcome.arrays["received_site"], sent)
    return [found.get(name_of(device), []) for device in range(len(population.rows))]


def run(
    population: Population, method: str, settings: Settings, seed: int, clusters: Sequence[Sequence[int]]
) -> Course:
    """Train a model by federated averaging with chosen clients; their models count equally, as in Cho and others (2020).

    The draws of a round and the rows of an update are the same for all methods, as far as the clients are.

    Args:
        population: rows by device.
        method: of `flareclust.core.client_selection.METHODS`.
        settings: see there.
        seed: of the network and of all draws.
        clusters: of each device.
    """
    with _one_thread():
        network = network_of(population, seed)
        weights = {name: value.detach().clone() for name, value in network.named_parameters()}
        held_out = torch.from_numpy(population.held_out), torch.from_numpy(population.held_out_classes)
        devices, seen = [], []
        for round_ in range(settings.rounds):
            chosen = _chosen(population, method, settings, seed, round_, clusters, network, weights)
            weights = _trained(population, chosen, settings, seed, round_, network, weights)
            right = (_scores(network, weights, held_out[0]).argmax(1) == held_out[1]).numpy()
            devices.append(_means(right, population.owners, len(population.rows)))
            seen.append(len({cluster for device in chosen for cluster in clusters[device]}))
    sizes = np.bincount(population.owners, minlength=len(population.rows))
    by_device = np.array(devices)
    return Course(by_device @ (sizes / sizes.sum()), by_device, np.array(seen))


def _chosen(
    population: Population,
    method: str,
    settings: Settings,
    seed: int,
    round_: int,
    clusters: Sequence[Sequence[int]],
    network: nn.Module,
    weights: Mapping[str, Tensor],
) -> list[int]:
    rng = stream(seed, round_, "client selection")
    drawn = draw(population.counts, settings.m if method == RANDOM else settings.d, rng)
    if method == RANDOM:
        return drawn.tolist()
    losses = _losses(population, drawn, network, weights)
    if method == POW_D_KFED:
        places = pow_d(losses, settings.m, [clusters[device] for device in drawn])
    else:
        places = pow_d(losses, settings.m)
    return drawn[places].tolist()


def _trained(
    population: Population,
    chosen: Sequence[int],
    settings: Settings,
    seed: int,
    round_: int,
    network: nn.Module,
    weights: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    own = make_devices([population.rows[one] for one in chosen], [population.classes[one] for one in chosen])
    start = {name: value.expand(len(chosen), *value.shape) for name, value in weights.items()}
    generator = torch.Generator().manual_seed(int(stream(seed, round_, "updates").integers(2**31)))
    trained = train(
        network, start, own, updates=settings.updates, lr=settings.lr, batch=settings.batch, generator=generator
    )
    return average(trained, torch.ones(len(chosen)))


def _losses(population: Population, devices: IntArray, network: nn.Module, weights: Mapping[str, Tensor]) -> FloatArray:
    """Return the mean cross-entropy of each device's rows under the common weights, (d,)."""
    rows = torch.from_numpy(np.concatenate([population.rows[one] for one in devices]))
    classes = torch.from_numpy(np.concatenate([population.classes[one] for one in devices]))
    each = functional.cross_entropy(_scores(network, weights, rows), classes, reduction="none").double().numpy()
    return _means(each, np.repeat(np.arange(len(devices)), population.counts[devices]), len(devices))


def _scores(network: nn.Module, weights: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([functional_call(network, dict(weights), (part,)) for part in rows.split(_AT_ONCE)])


def _means(values: FloatArray, owners: IntArray, m: int) -> FloatArray:
    """Return the mean of each device's values, (m,)."""
    return np.bincount(owners, weights=values, minlength=m) / np.bincount(owners, minlength=m)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have torch compute with one thread: sums do not depend on the machine's load or number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

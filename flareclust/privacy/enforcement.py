"""What a job may ask of a site with a policy, and what may leave it.

The same checks in all engines: NVFlare's run them in the site's filters, before and after whatever executor a job names;
the in-process engine calls them itself. They look at messages only, never at rows, and their texts hold no value of any.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import Array, Message
from flareclust.privacy.job_folder import RequestLog
from flareclust.privacy.policy import Policy
from flareclust.privacy.secure_aggregation.fixed_point import WORDS
from flareclust.privacy.secure_aggregation.masking import KEYS_ARRAY, MASKED
from flareclust.protocol.registry import executors
from flareclust.protocol.schema import SECONDS, Field, plain
from flareclust.protocol.sizes import policy_sizes
from flareclust.protocol.task import StepName

if TYPE_CHECKING:
    from flareclust.federation.executor import ClusteringExecutor

#: The array with the edges of bins, which has a row for each column and not for each centroid; executors bound its size.
_EDGES = "edges"

#: What a lead can do whose job is refused before its rounds.
_COMPARED = ", which compare columns before the rounds; compare=none and scale=none leave that out"

#: Kinds of arrays that a task may bring: numbers, and names of columns with a finished result.
_KINDS = "fibU"

#: The steps that executors of all algorithms answer.
_OF_ALL = (
    StepName.ASSESS,
    StepName.PLACE,
    StepName.KEYS,
    StepName.PROFILE,
    StepName.PROFILE_BINS,
    StepName.PROFILE_KNOWN,
    StepName.PROFILE_KNOWN_BINS,
    StepName.OUTCOME_COUNTS,
    StepName.OUTCOME_SUMS,
    StepName.ROWS_READ,
)

#: The steps after which a job has nothing more to ask, but for profiles and outcomes after the assessment, and so many of each.
_LAST = (StepName.ASSESS, StepName.PLACE, *StepName.PROFILING)
_OUTCOMES, _READ = (StepName.OUTCOME_COUNTS, StepName.OUTCOME_SUMS), (StepName.ROWS_READ,)
_PROFILES = tuple(step for step in StepName.PROFILING if step not in (*_OUTCOMES, *_READ))
_MOST = ((_PROFILES, 5), (_OUTCOMES, 2), (_READ, 1))


@dataclass(frozen=True)
class Request:
    """A task that was let in.

    Attributes:
        step: what the site is asked to do.
        round: its number.
        sizes: what a reply must respect: K, the number of centroids sent; c and t of the scores.
        masked: whether the sites' keys came with it, so that the answer is masked sums.
    """

    step: str
    round: int
    sizes: Mapping[str, int]
    masked: bool = False


@dataclass(frozen=True)
class PolicyEnforcer:
    """Holds one job to a site's policy.

    Attributes:
        policy: the site's.
        asked: what the job has asked so far.
        known: the executors of algorithms by name, whose steps say what they send.
    """

    policy: Policy
    asked: RequestLog = field(default_factory=RequestLog)
    known: "Mapping[str, type[ClusteringExecutor]]" = field(default_factory=executors)

    def check_request(self, step: str, round_: object, arrays: Mapping[str, Any]) -> Request:
        """Return what the job asks for, written down as asked.

        Args:
            step: of the task.
            round_: of the task, as it came.
            arrays: that came with it.

        Raises:
            Refusal: it may not be asked.
        """
        if not any(step in sender.job_steps() for sender in self.known.values()):
            if step in StepName.OF_CLASSES and self.policy.dp is None:
                raise against_classes(f"was asked for the step {step} of federated averaging (fedavg, ifca)")
            raise _against("was asked for a step that no algorithm has which is registered there")
        if isinstance(round_, bool) or not isinstance(round_, int) or round_ < 0:
            raise _against("was asked without the number of a round")
        self._check_order(step, round_)
        _check_task(arrays, self.policy.max_centroids)
        self.asked.add(step, round_)
        return Request(step, round_, policy_sizes(step, arrays), masked=KEYS_ARRAY in arrays)

    def _check_order(self, step: str, round_: int) -> None:
        before = self.asked.so_far()
        if len(before) >= self.policy.max_rounds:
            raise _against(f"answers at most {self.policy.max_rounds} exchanges of one job", "max_rounds")
        if (step, round_) in before:
            raise _against(f"was asked for the step {step} of round {round_} before")
        if step in StepName.PROFILING:
            kind, most = next((steps, most) for steps, most in _MOST if step in steps)
            asked = sum(name in kind for name, _ in before)
            again = step == StepName.OWN_CLUSTERS and any(name == step for name, _ in before)
            late = (
                again
                or asked >= most
                or (step == StepName.OUTCOME_COUNTS and asked > 0)
                or not before
                or before[-1][0] not in (StepName.ASSESS, *StepName.PROFILING)
            )
        else:
            late = bool(before) and before[-1][0] in _LAST
        if late or (before and round_ < before[-1][1]):
            raise _against(f"was asked for the step {step} of round {round_} too late")

    def check_reply(self, question: Request, arrays: Mapping[str, Any], made_under: object) -> Message:
        """Return copies of the arrays of a reply, with its time; Refusal where they may not leave.

        `made_under` is what its executor stated: its algorithm and the policy it kept to, see `SiteSession.statement`.
        """
        algorithm, private = self._stated(made_under)
        if self.policy.dp is not None and not private:
            raise _against("lets out differentially private numbers only")
        message, sender = {name: value for name, value in arrays.items() if name != SECONDS}, self.known.get(algorithm)
        if sender is None or question.step not in sender.job_steps():
            raise _against(
                f"kept back a reply to the step {question.step} of an algorithm that is not registered there"
            )
        step, secure = sender.job_steps()[question.step], self.policy.secure_sums
        fields, allowed = step.schema.fields, self.policy.arrays
        # Other names than the algorithm's stay unsaid: they could be anything.
        if allowed is not None and (kept := [name for name in message if name in fields and name not in allowed]):
            early = _COMPARED if question.step in (StepName.NAMES, StepName.SCALES) else ""
            raise _against(f"does not let out {', '.join(sorted(kept))}{early}", "arrays")
        if not all(type(value) is np.ndarray for value in arrays.values()):
            raise _against("lets out plain arrays only")
        seconds = {SECONDS: _seconds(arrays.get(SECONDS))}
        if question.masked:
            return _masked(message) | seconds
        _check_form(question, algorithm, sender, message, private)
        # sums that do not add up over sites
        if secure and question.step in StepName.SCORING and not (step.summed or sender.private):
            what = f"lets out sums masked only, and those that this algorithm asks for in the step {question.step} cannot be masked"
            raise _against(what, "secure_sums")
        sums_of_columns = secure and question.step == StepName.DESCRIBE and message["mean"].size > 0
        if step.jobs == "secure" or (secure and step.summed) or sums_of_columns:
            raise _against("lets out sums masked only; submit with secure_sums", "secure_sums")
        for name, form in fields.items():
            self._check_size(question.step, name, form, message[name])
            if form.rows and not private:
                self._check_rows(name, message[name])
        return {name: np.array(message[name], order="C") for name in fields} | seconds

    def _stated(self, made_under: object) -> tuple[str, bool]:
        if not isinstance(made_under, str):
            raise _against(
                "lets out replies of flareclust's own executors only, which state the policy that they kept to"
            )
        try:
            stated = json.loads(made_under)
            algorithm, private, policy = stated["algorithm"], stated["private"], stated["policy"]
        except (ValueError, KeyError, TypeError):
            raise _against("could not read the policy that a reply was made under") from None
        if policy != self.policy.stated:
            raise _against("got another policy while the job was under way; the next job will do")
        return str(algorithm), private is True

    def _check_size(self, step: str, name: str, field: Field, value: Array) -> None:
        if step == StepName.KNOWN_MOMENTS and value.shape[-1] == 1:  # each group is a column
            return
        if field.axes[-1:] == ("d",) and len(field.axes) > 1:
            d = 1 if name == "centroids" else max(1, value.shape[-1])
            if value.shape[0] > self.policy.max_centroids * d:
                raise _against(f"lets out at most {self.policy.max_centroids} centroids in a message", "max_centroids")

    def _check_rows(self, name: str, value: Array) -> None:
        counts = value[value != 0]
        if value.dtype == np.int64 and (counts < self.policy.min_count).any():
            raise _against(f"lets out no {name} below {self.policy.min_count}", "min_count")
        if self.policy.round_counts > 1 and (counts % self.policy.round_counts != 0).any():
            raise _against(f"lets out {name} as multiples of {self.policy.round_counts} only", "round_counts")


def against_classes(what: str) -> Refusal:
    """Return why a site with a policy trains no model of classes; `what` was asked or cannot be done, in words that follow its name."""
    return _against(
        f"{what}, and in place of rows its policy shows means of them, which have no class; leave the site out of the job, "
        "or have its operator remove the policy",
        "min_count",
    )


def _check_form(
    question: Request, algorithm: str, sender: "type[ClusteringExecutor]", message: Message, private: bool
) -> None:
    """Raise Refusal unless a reply is what the algorithm sends in the step."""
    schema = sender.job_steps()[question.step].schema
    form = "other arrays" if set(message) != set(schema.fields) else ""
    try:
        schema.check(message, question.sizes)
    except BadMessage:
        form = form or "another form"
    if form or (sender.private != private and (private or question.step not in _OF_ALL)):
        raise _against(
            f"kept back a reply to the step {question.step}, which has {form or 'another form'} than {algorithm} sends"
        )


def reason(text: object) -> str:
    """Return the reason of a refusal as it may leave: a text, and a short one."""
    return plain(text, " ") if isinstance(text, str) else "refused"


def _check_task(arrays: Mapping[str, Any], maximum: int) -> None:
    for name, value in arrays.items():
        if type(value) is not np.ndarray or value.dtype.kind not in _KINDS:
            raise _against("was sent something else than plain arrays of numbers and names")
        if value.ndim > 1 and value.dtype == np.float64 and name != _EDGES and value.shape[0] > maximum:
            raise _against(f"takes at most {maximum} centroids in a message", "max_centroids")


def _masked(message: Message) -> Message:
    """Return masked sums, in which nobody can see what they are of; the executor has kept to the policy before."""
    try:
        MASKED.check(message, {"b": WORDS})
    except BadMessage:
        raise _against("kept back a reply that was to be masked sums, and is not") from None
    return {name: np.array(value, order="C") for name, value in message.items()}


def _seconds(value: object) -> Array:
    good = type(value) is np.ndarray and value.dtype == np.float64 and value.shape == () and 0 <= value < 1e9
    return np.array(value) if good else np.array(0.0)


def _against(what: str, setting: str = "") -> Refusal:
    return Refusal(f"{what} (its policy{': ' + setting if setting else ''})")

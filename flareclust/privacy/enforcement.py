"""What a job may ask of a site with a policy, and what may leave it.

The same checks in all engines: NVFlare's run them in the site's filters, before and after whatever executor a job names;
the in-process engine calls them itself. They look at messages only, never at rows, and their texts hold no value of any.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flareclust._foundation.errors import BadMessage, Refusal
from flareclust._foundation.typing import Array, Message
from flareclust.privacy.policy import Policy
from flareclust.privacy.reply_specs import ReplySpec, registered_replies
from flareclust.privacy.request_log import RequestLog
from flareclust.privacy.secure_aggregation.fixed_point import WORDS
from flareclust.privacy.secure_aggregation.masking import KEYS_ARRAY, MASKED
from flareclust.protocol.schema import SECONDS, Field
from flareclust.protocol.task import ASSESS, DESCRIBE, KEYS, PLACE, SCORE

#: The longest text of a refusal that leaves.
LONGEST_REASON = 400

#: Kinds of arrays that a task may bring: numbers, and names of columns with a finished result.
_KINDS = "fibU"

#: The steps after which a job has nothing more to ask.
_LAST = (ASSESS, PLACE)

#: The steps that executors of all algorithms answer.
_OF_ALL = (ASSESS, PLACE, KEYS)


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
        known: what algorithms send, by step.
    """

    policy: Policy
    asked: RequestLog = field(default_factory=RequestLog)
    known: Mapping[str, list[ReplySpec]] = field(default_factory=registered_replies)

    def check_request(self, step: str, round_: object, arrays: Mapping[str, Any]) -> Request:
        """Return what the job asks for, written down as asked.

        Args:
            step: of the task.
            round_: of the task, as it came.
            arrays: that came with it.

        Raises:
            Refusal: it may not be asked.
        """
        if step not in self.known:
            raise _against("was asked for a step that no algorithm has which is registered there")
        if isinstance(round_, bool) or not isinstance(round_, int) or round_ < 0:
            raise _against("was asked without the number of a round")
        self._check_order(step, round_)
        _check_task(arrays, self.policy.max_centroids)
        self.asked.add(step, round_)
        return Request(step, round_, _sizes(step, arrays), masked=KEYS_ARRAY in arrays)

    def _check_order(self, step: str, round_: int) -> None:
        before = self.asked.so_far()
        if len(before) >= self.policy.max_rounds:
            raise _against(f"answers at most {self.policy.max_rounds} exchanges of one job", "max_rounds")
        if (step, round_) in before:
            raise _against(f"was asked for the step {step} of round {round_} before")
        if before and (round_ < before[-1][1] or before[-1][0] in _LAST):
            raise _against(f"was asked for the step {step} of round {round_} too late")

    def check_reply(self, question: Request, arrays: Mapping[str, Any], made_under: object) -> Message:
        """Return copies of the arrays of a reply that may leave.

        Args:
            question: what they answer.
            arrays: the reply.
            made_under: what its executor stated, see `SiteContext.statement`.

        Raises:
            Refusal: they may not leave.
        """
        private = self._stated(made_under)
        if self.policy.dp is not None and not private:
            raise _against("lets out differentially private numbers only")
        message = {name: value for name, value in arrays.items() if name != SECONDS}
        allowed = self.policy.arrays
        if allowed is not None and (
            kept := [name for name in self._names(question.step, message) if name not in allowed]
        ):
            raise _against(f"does not let out {', '.join(sorted(kept))}", "arrays")
        if not all(type(value) is np.ndarray for value in arrays.values()):
            raise _against("lets out plain arrays only")
        if question.masked:
            return _masked(message) | {SECONDS: _seconds(arrays.get(SECONDS))}
        sent = self._sent(question, message, private)
        if self.policy.secure_sums and sent.sums and not sent.maskable:
            what = f"lets out sums masked only, and those that this algorithm asks for in the step {question.step} cannot be masked"
            raise _against(what, "secure_sums")
        if sent.sums is None or (self.policy.secure_sums and (sent.sums or _tells_columns(question, message))):
            raise _against("lets out sums masked only; submit with secure_sums", "secure_sums")
        for name, form in sent.schema.fields.items():
            self._check_size(name, form, message[name])
            if form.rows and not private:
                self._check_rows(name, message[name])
        seconds = _seconds(arrays.get(SECONDS))
        return {name: np.array(message[name], order="C") for name in sent.schema.fields} | {SECONDS: seconds}

    def _stated(self, made_under: object) -> bool:
        if not isinstance(made_under, str):
            raise _against(
                "lets out replies of flareclust's own executors only, which state the policy that they kept to"
            )
        try:
            stated = json.loads(made_under)
            private, policy = stated["private"], stated["policy"]
        except (ValueError, KeyError, TypeError):
            raise _against("could not read the policy that a reply was made under") from None
        if policy != json.loads(json.dumps(self.policy.to_json())):
            raise _against("got another policy while the job was under way; the next job will do")
        return private is True

    def _names(self, step: str, message: Mapping[str, Any]) -> Iterable[str]:
        """Return the names of a reply's arrays that some algorithm sends in a step: others stay unsaid, they are no names."""
        known = {name for sent in self.known.get(step, []) for name in sent.schema.fields}
        return [name for name in message if name in known]

    def _sent(self, question: Request, message: Message, private: bool) -> ReplySpec:
        """Return what algorithm's reply this is."""
        alike = [sent for sent in self.known.get(question.step, []) if set(sent.schema.fields) == set(message)]
        # Of equal forms the one that is no sum goes first: the executor knows which of them its own is, and masks it if need be.
        for sent in sorted(alike, key=lambda sent: sent.sums is not False):
            if sent.private != private and question.step not in _OF_ALL:
                continue
            try:
                sent.schema.check(message, question.sizes)
            except BadMessage:
                continue
            return sent
        form = "another form" if alike else "other arrays"
        raise _against(
            f"kept back a reply to the step {question.step}, which has {form} than those of the algorithms registered there"
        )

    def _check_size(self, name: str, said: Field, value: Array) -> None:
        if said.axes[-1:] == ("d",) and len(said.axes) > 1:
            d = 1 if name == "centroids" else max(1, value.shape[-1])
            if value.shape[0] > self.policy.max_centroids * d:
                raise _against(f"lets out at most {self.policy.max_centroids} centroids in a message", "max_centroids")

    def _check_rows(self, name: str, value: Array) -> None:
        counts = value[value != 0]
        if value.dtype == np.int64 and (counts < self.policy.min_count).any():
            raise _against(f"lets out no {name} below {self.policy.min_count}", "min_count")
        if self.policy.round_counts > 1 and (counts % self.policy.round_counts != 0).any():
            raise _against(f"lets out {name} as multiples of {self.policy.round_counts} only", "round_counts")


def reason(text: object) -> str:
    """Return the reason of a refusal as it may leave: a text, and a short one."""
    return "".join(c if c.isprintable() else " " for c in text[:LONGEST_REASON]) if isinstance(text, str) else "refused"


def _check_task(arrays: Mapping[str, Any], maximum: int) -> None:
    for value in arrays.values():
        if type(value) is not np.ndarray or value.dtype.kind not in _KINDS:
            raise _against("was sent something else than plain arrays of numbers and names")
        if value.ndim > 1 and value.dtype == np.float64 and value.shape[0] > maximum:
            raise _against(f"takes at most {maximum} centroids in a message", "max_centroids")


def _sizes(step: str, arrays: Mapping[str, Array]) -> dict[str, int]:
    sizes = {}
    if "centroids" in arrays and arrays["centroids"].ndim:
        sizes = {"K": len(arrays["centroids"])} | ({"k": len(arrays["centroids"])} if step == ASSESS else {})
    number = arrays.get("candidate")
    if step == SCORE and number is not None and number.ndim == 1 and number.size:
        sizes |= {"c": int(number[-1]) + 1, "t": len(number)}
    return sizes


def _tells_columns(question: Request, message: Message) -> bool:
    """Return whether a reply is a description with sums of the columns."""
    return question.step == DESCRIBE and message["mean"].size > 0


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

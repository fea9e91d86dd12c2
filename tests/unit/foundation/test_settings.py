"""Settings: what they take, and the line that says what is wrong with a value."""

from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field, model_validator

from flareclust._foundation.errors import UserError
from flareclust._foundation.settings import Settings, expected


class Example(Settings):
    rounds: int = Field(default=3, ge=1, lt=10)
    share: float = Field(default=0.5, gt=0, le=1)
    by: Literal["mean", "median"] = "mean"
    secure: bool = False
    local: Literal["auto"] | Annotated[int, Field(ge=2)] | None = None
    sizes: dict[str, int] = Field(default_factory=dict)
    name: str

    @model_validator(mode="after")
    def _fits(self) -> "Example":
        if self.secure and self.by == "median":
            raise UserError("a median is no sum: take by=mean, or leave out secure")
        return self


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"rounds": 0}, "rounds must be an integer of at least 1 and less than 10, got 0"),
        ({"rounds": "5"}, "rounds must be an integer of at least 1 and less than 10, got '5'"),
        ({"rounds": True}, "rounds must be an integer of at least 1 and less than 10, got True"),
        ({"share": 0}, "share must be a number greater than 0 and of at most 1, got 0"),
        ({"share": "a"}, "share must be a number greater than 0 and of at most 1, got 'a'"),
        ({"by": "meen"}, "by must be one of mean, median; got 'meen' (did you mean 'mean'?)"),
        ({"secure": 1}, "secure must be true or false, got 1"),
        ({"local": "aut"}, "local must be auto or an integer of at least 2, or None, got 'aut' (did you mean 'auto'?)"),
        ({"local": 1}, "local must be auto or an integer of at least 2, or None, got 1"),
        ({"sizes": [1]}, "sizes must be a table, got [1]"),
        ({"sizes": {"a": "b"}}, "sizes must be a table, got 'b'"),
        ({"round": 4}, "unknown setting 'round' (did you mean 'rounds'?); known: rounds, share, by, secure"),
        ({"secure": True, "by": "median"}, "a median is no sum: take by=mean, or leave out secure"),
        ({"rounds": 0, "share": 2}, "got 0; share must be a number"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named_with_what_it_must_be(values, line):
    with pytest.raises(UserError) as caught:
        Example(name="a", **values)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_setting_is_named():
    with pytest.raises(UserError, match="the setting 'name' is missing"):
        Example()


def test_numbers_of_numpy_become_numbers_of_python():
    settings = Example(name="a", rounds=np.int64(4), share=np.float32(0.5), local=np.int32(3), sizes={"a": np.int8(1)})
    assert settings == Example(name="a", rounds=4, share=0.5, local=3, sizes={"a": 1})
    assert type(settings.rounds) is int
    assert type(settings.sizes["a"]) is int


def test_an_integer_is_a_number():
    assert Example(name="a", share=1).share == 1.0


def test_settings_are_frozen():
    settings = Example(name="a")
    with pytest.raises(ValueError, match="frozen"):
        settings.rounds = 4


def test_what_a_field_takes_in_words():
    assert {name: expected(field) for name, field in Example.model_fields.items()} == {
        "rounds": "an integer of at least 1 and less than 10",
        "share": "a number greater than 0 and of at most 1",
        "by": "one of mean, median",
        "secure": "true or false",
        "local": "auto or an integer of at least 2, or None",
        "sizes": "a table",
        "name": "text",
    }


class Renamed(Settings):
    renamed = {"old": "new"}
    new: int = 1


def test_an_old_name_still_works_but_not_beside_the_new_one():
    assert Renamed(old=3).new == 3
    with pytest.raises(UserError, match="unknown setting 'old'"):
        Renamed(old=3, new=4)

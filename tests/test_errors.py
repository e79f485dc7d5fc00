"""An error is one line: where, what, how to mend it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsim.errors import ExecutionError, InputError, LlmsimError, ProgramError


def test_line_has_place_finding_and_remedy():
    error = InputError("'50 GB' is not a bandwidth", where="links[2].bandwidth", mend="write a rate such as 50GB/s")
    assert str(error) == "links[2].bandwidth: '50 GB' is not a bandwidth; write a rate such as 50GB/s"
    assert str(InputError("no such file")) == "no such file"


@pytest.mark.parametrize("kind", [LlmsimError, InputError, ProgramError, ExecutionError])
def test_a_place_is_put_in_front_and_the_kind_is_kept(kind):
    error = kind("wrong", where="links[2]", mend="right").at("net.yaml").at("scenario.yaml")
    assert type(error) is kind
    assert str(error) == "scenario.yaml: net.yaml: links[2]: wrong; right"
    assert kind("wrong").at("net.yaml").where == "net.yaml"


def test_every_kind_is_a_value_error_that_one_clause_catches():
    for kind in (InputError, ProgramError, ExecutionError):
        assert issubclass(kind, LlmsimError)
        assert issubclass(kind, ValueError)


@given(st.text(), st.none() | st.text(), st.none() | st.text())
def test_always_one_line(what, where, mend):
    assert len(InputError(what, where=where, mend=mend).line().splitlines()) <= 1

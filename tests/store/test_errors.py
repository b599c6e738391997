"""Errors reach people as one line and a hint, whichever process they started in."""

import builtins
import pickle

import pytest

from infuser_core import errors
from infuser_core.errors import InfuserError

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, InfuserError)]
WRONG_USE = (errors.ConfigError, errors.UsageError, errors.BusyRunError, errors.UnwritableStoreError)
CODES = {**dict.fromkeys(WRONG_USE, 2), errors.MalformedInputError: 1, errors.Terminated: 143}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_survive_a_process_boundary(kind: type[InfuserError]):
    arrived = pickle.loads(pickle.dumps(kind("what and where", hint="what to do")))
    assert type(arrived) is kind
    assert (arrived.message, arrived.hint, arrived.exit_code) == ("what and where", "what to do", kind.exit_code)
    assert str(arrived) == "what and where (what to do)"


def test_a_pruned_file_is_named_across_a_process_boundary():
    lost = errors.PrunedError("what and where", hint="what to do", key="update_solver-1")
    assert vars(pickle.loads(pickle.dumps(lost))) == vars(lost)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not InfuserError], ids=lambda kind: kind.__name__)
def test_errors_are_also_of_the_standard_family(kind: type[InfuserError]):
    standard = [base for base in kind.__mro__ if base.__module__ == builtins.__name__]
    assert len(standard) > len([base for base in Exception.__mro__])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_exit_codes_are_the_documented_ones(kind: type[InfuserError]):
    assert kind.exit_code == CODES.get(kind, 3)

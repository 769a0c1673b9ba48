"""The tree of errors, as it is drawn."""

from __future__ import annotations

import re

import pytest

from loaderprobe import errors
from loaderprobe.errors import LoaderprobeError


def _tree(kind: type[LoaderprobeError]) -> list[type[LoaderprobeError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]


KINDS = [kind for kind in _tree(LoaderprobeError) if kind.__module__ == errors.__name__]


def test_no_error_has_an_exit_code_of_something_else() -> None:
    """Done 0, some failed 4, a gate failed 6, interrupted 130."""
    apart = {errors.EXIT_DONE, errors.EXIT_SOME_FAILED, errors.EXIT_GATE_FAILED, errors.EXIT_INTERRUPTED}
    assert apart == {0, 4, 6, 130}
    assert not apart & {kind.exit_code for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_error_is_drawn_with_its_exit_code(kind: type[LoaderprobeError]) -> None:
    """The drawing gives the code on the line of the class, or on that of the class above."""
    (line,) = [line for line in (errors.__doc__ or "").splitlines() if re.search(rf"\b{kind.__name__}\b", line)]
    drawn = re.search(rf"{kind.__name__}\s+(\d)\b", line)
    assert int(drawn[1]) == kind.exit_code if drawn else kind.exit_code == kind.__mro__[1].exit_code  # type: ignore[attr-defined]  # the class above is one of ours


def test_an_error_carries_its_next_step() -> None:
    """The message is the text of the exception, the hint stands beside it."""
    error = errors.NoSpace("full", hint="free some")
    assert (str(error), error.message, error.hint) == ("full", "full", "free some")
    assert errors.BadValue("x").hint == ""


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("s3://me:secret@bucket/a b", "s3://***@bucket/a b"), ("https:/tok@host", "https:/***@host"),
        ("of 'https://h/k?sig=secret&e=1' and", "of 'https://h/k?***' and"), ("/a:/b@c?d", "/a:/b@c?d"),
    ],
)  # fmt: skip
def test_secrets_in_urls_are_masked(text: str, kept: str) -> None:
    """User, password and query, also of a URL that was taken for a path; a path stays as it is."""
    assert errors.BadValue(text, hint=text).message == errors.BadValue("", hint=text).hint == kept

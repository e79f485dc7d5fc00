"""One family of errors: each says what is wrong, where, and how to mend it.

Everything a user can cause is an :class:`LlmsimError`; the command line prints its one line and exits with 2.
Broken invariants of our own code are ``assert`` statements and stay tracebacks.
"""

from typing import Any


class LlmsimError(ValueError):
    """A mistake a user can mend.

    Args:
        what: the finding, e.g. ``"'50 GB' is not a bandwidth"``.
        where: file, field or option it was found in, e.g. ``"net.yaml: links[2].bandwidth"``.
        mend: what to write or do instead, e.g. ``"write a rate such as 50GB/s or 400Gb/s"``.
    """

    def __init__(self, what: str, *, where: str | None = None, mend: str | None = None):
        self.what, self.where, self.mend = what, where, mend
        super().__init__(self.line())

    def line(self) -> str:
        """The whole message on one line: ``where: what; mend``."""
        text = f"{self.where}: {self.what}" if self.where else self.what
        text = f"{text}; {self.mend}" if self.mend else text
        return " ".join(text.split())

    def at(self, where: str) -> "LlmsimError":
        """The same error with the place it was found in put in front."""
        place = f"{where}: {self.where}" if self.where else where
        return type(self)(self.what, where=place, mend=self.mend)


class InputError(LlmsimError):
    """A value, option or file that cannot be used."""

    @classmethod
    def of_validation(cls, error: Any, where: str) -> "InputError":
        """What pydantic found in the file ``where``, every finding with its field, on one line.

        Args:
            error: a ``pydantic.ValidationError`` (pydantic is not imported here: it is slow to load).
        """
        findings = [_finding(found) for found in error.errors()[:5]]
        more = f"; and {error.error_count() - 5} more" if error.error_count() > 5 else ""
        return cls("; ".join(findings) + more, where=where)


def _finding(found: Any) -> str:
    """``links[2].bandwidth: '50 GB' is not a bandwidth``."""
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found["loc"]).lstrip(".")
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, LlmsimError):
        text = cause.line()
    elif found["type"] in ("extra_forbidden", "unexpected_keyword_argument"):  # of models, and of dataclasses
        text = "unknown field"
    elif found["type"] == "missing":
        text = "is missing"
    else:
        text = found["msg"].removeprefix("Value error, ")
    return f"{field}: {text}" if field else text


class ProgramError(LlmsimError):
    """A program that is not well formed, deadlocks, races, or computes something else than it claims."""


class ExecutionError(LlmsimError):
    """A real run that failed: a rank died, a peer did not answer, a privilege is missing."""

"""The field's terms in English and Chinese: ``explain("ring all-reduce")``, ``explain("数据并行")``."""

import difflib
import textwrap
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from llmsim.errors import InputError


@dataclass(frozen=True)
class Term:
    """One entry of the glossary.

    ``verdict`` says what holds of ``claim``, what people repeat about the term. ``number`` is the place in the list of
    34 terms that the project covers, empty for terms beside it.
    """

    en: tuple[str, ...]
    zh: tuple[str, ...]
    definition: str
    number: str = ""
    formula: tuple[str, ...] = ()
    claim: str = ""
    verdict: str = ""
    shown_by: tuple[str, ...] = ()
    see: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The usual English name."""
        return self.en[0]

    def __str__(self) -> str:
        """The entry as text of at most 100 columns, formulas apart."""
        title = f"{self.name} ({', '.join(self.zh)})"
        also = f"also: {', '.join(self.en[1:])}" if self.en[1:] else ""
        parts = [title, also, _wrap(self.definition), *(f"    {line}" for line in self.formula)]
        if self.claim:
            parts += [_wrap(f"People say: {self.claim}"), _wrap(f"In fact: {self.verdict}")]
        parts += [f"Shown by: {place}" for place in self.shown_by]
        if self.see:
            parts.append(f"See also: {', '.join(self.see)}")
        return "\n".join(part for part in parts if part)


def _wrap(text: str) -> str:
    return textwrap.fill(text, width=100)


@cache
def terms() -> tuple[Term, ...]:
    """All terms, in the order of the file."""
    text = resources.files("llmsim.catalog").joinpath("glossary.toml").read_text(encoding="utf-8")
    return tuple(_term(entry) for entry in tomllib.loads(text)["term"])


def _term(entry: Mapping[str, object]) -> Term:
    values = {
        key: tuple(value) if isinstance(value, list) else " ".join(str(value).split()) for key, value in entry.items()
    }
    return Term(**values)  # type: ignore[arg-type]


def _key(name: str) -> str:
    """``name`` without what people write differently: case, spaces, hyphens, underscores."""
    return "".join(c for c in name.casefold() if not c.isspace() and c not in "-–_&·")


@cache
def _index() -> Mapping[str, Term]:
    return {_key(name): term for term in terms() for name in (*term.en, *term.zh)}


def explain(name: str) -> Term:
    """The term of that name; ``print`` it to read it.

    Args:
        name: English or Chinese; case, spaces and hyphens don't matter.

    Raises:
        InputError: no such term; close ones are suggested.
    """
    index = _index()
    key = _key(name)
    if key in index:
        return index[key]
    close = [index[k] for k in difflib.get_close_matches(key, index, n=5, cutoff=0.6)]
    within = [term for k, term in index.items() if len(key) > 1 and key in k]
    names = list(dict.fromkeys(term.name for term in (close + within)))[:3]
    mend = f"did you mean {' or '.join(names)}?" if names else "`llmsim explain` lists all terms"
    raise InputError(f"no term {name!r} in the glossary", mend=mend)

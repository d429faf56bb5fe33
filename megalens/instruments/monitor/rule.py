"""What a rule is: parameters that people can change, and a small pure function over the columns of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...protocol.kinds import Kind
from .alarm import Severity
from .table import StepTable

__all__ = ["Finding", "Rule"]


@dataclass(frozen=True)
class Finding:
    """Rows of which something is wrong.

    Attributes
    ----------
    rows : ndarray
        Which ones.
    statistic : str
        What of them.
    value, expected : ndarray or float
        What was found, and what it should have been, of each.
    sentence : callable
        Takes value and expected of one of them and gives what it means, for people.
    severity : str, optional
        The rule's own where absent.
    """

    rows: NDArray[np.intp]
    statistic: str
    value: NDArray[np.float64] | float
    expected: NDArray[np.float64] | float
    sentence: Callable[[float, float], str]
    severity: Severity | None = None


class Rule(Kind):
    """A rule, with its parameters as fields. The first paragraph of a subclass's description is told to people: what an alarm of it means.

    Attributes
    ----------
    severity : str
        Of its alarms.
    """

    severity: ClassVar[Severity] = "warning"

    def find(self, now: StepTable) -> Iterable[Finding]:
        """Return what is wrong in a step."""
        raise NotImplementedError

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """Return the defaults of its parameters."""
        return {name: spec["default"] for name, spec in cls.properties.items()}

"""A generated text in a cell: what was written, shown as the view of its tokens."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from . import requests as of_run
from .written_text import Generation

if TYPE_CHECKING:
    from ...api.notebook import NotebookRun
    from ...pictures.widgets import View


class NotebookGeneration(Generation):
    """A generation that shows itself; made by ``run.generate(…)`` and ``run.generation(number)``."""

    def __init__(self, notebook: NotebookRun, number: int) -> None:
        super().__init__(notebook.run, number)
        self._notebook = notebook

    def view(self, name: str = "tokens", **options: Any) -> View:
        """Return a view of this generation by its name: any that has the option ``generation``."""
        return self._notebook.view(name, generation=self.number, **options)

    def _of(self, number: int) -> NotebookGeneration:
        return NotebookGeneration(self._notebook, number)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.view())  # type: ignore[no-untyped-call]


@wraps(of_run.generate)
def generate(notebook: NotebookRun, *arguments: Any, **named: Any) -> NotebookGeneration:
    """Have the model write text, and show it."""
    return NotebookGeneration(notebook, of_run.generate(notebook.run, *arguments, **named).number)


@wraps(of_run.generation)
def generation(notebook: NotebookRun, number: int | None = None) -> NotebookGeneration:
    """Return one generation by its number; the newest when absent."""
    return NotebookGeneration(notebook, of_run.generation(notebook.run, number).number)


@property  # type: ignore[misc]
def generations(notebook: NotebookRun) -> list[NotebookGeneration]:
    """Every generation of the run, by number."""
    return [NotebookGeneration(notebook, each.number) for each in notebook.run.generations]

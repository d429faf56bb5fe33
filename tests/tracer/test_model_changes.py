"""What a script puts into its model after tracing began is named, and nothing else is."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from megalens.tracer.model_changes import ModelChanges


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        self.scale = nn.Parameter(torch.ones(2))
        self.last: nn.Module | None = None


def parametrized(model: Model) -> None:
    parametrize.register_parametrization(model.layers[0], "weight", nn.Identity())


def put_and_taken(model: Model) -> None:
    """As sharding does for the time of a pass."""
    before = model.scale
    model.scale = nn.Parameter(torch.zeros(2))
    model.scale = before


CHANGES = [
    (lambda model: model.layers.append(nn.Linear(2, 2)), ["layers.2"]),
    (lambda model: model.layers.__setitem__(0, nn.Sequential(nn.Linear(2, 2))), ["layers.0"]),
    (lambda model: setattr(model, "scale", nn.Parameter(torch.zeros(2))), ["scale"]),
    (lambda model: setattr(model.layers[1], "bias", nn.Parameter(torch.zeros(2))), ["layers.1.bias"]),
    (parametrized, ["layers.0.parametrizations"]),
    # What is the model's own, elsewhere, or gone before the step.
    (lambda model: setattr(model, "last", model.layers[1]), []),
    (lambda model: model.layers.__setitem__(0, model.layers[0]), []),
    (put_and_taken, []),
    (lambda model: setattr(model, "cache", nn.Module()), []),
    (lambda model: nn.Sequential(model.layers[0], nn.Linear(2, 2)), []),
    (lambda model: copy.deepcopy(model).layers.append(nn.Linear(2, 2)), []),
    (lambda model: model.half().float(), []),
    (lambda model: model.load_state_dict(Model().state_dict()), []),
    (lambda model: setattr(model.layers[0], "bias", None), []),
]


@pytest.mark.parametrize(("change", "names"), CHANGES)
def test_what_is_new_in_the_model_is_named_once(change, names) -> None:
    model, said = Model(), []
    changes = ModelChanges([model], said.append)
    changes.look(1)
    change(model)
    changes.look(2)
    changes.look(3)
    changes.close()
    model.layers.append(nn.Linear(2, 2))
    changes.look(4)
    assert [sentence.split("before ")[1].split(". ")[0] for sentence in said] == [
        f"step 2: {name}" for name in names
    ]


def test_many_are_counted() -> None:
    model, said = Model(), []
    changes = ModelChanges([model], said.append)
    model.layers.extend(nn.Linear(2, 2) for _ in range(5))
    changes.look(7)
    changes.close()
    assert "before step 7: layers.2, layers.3, layers.4 and 2 more. They are neither" in said[0]

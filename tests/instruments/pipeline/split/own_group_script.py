"""What a launcher starts: it makes its process group itself, and ends by itself."""

import os

import torch
from torch import nn

from megalens.instruments.pipeline.split import SplitLayout, SplitTraining, seeded

layout = SplitLayout.of(pipeline=2, last_forward=False)
here = layout.place(int(os.environ["RANK"]))
torch.manual_seed(here.stage)
stage = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())

with SplitTraining(
    stage,
    layout=layout,
    loss_fn=nn.functional.mse_loss,
    optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    micro_batches=4,
    timeout=30,
) as training:
    for step in range(20):
        torch.manual_seed(1000 + step)
        x, target = torch.randn(8, 4), torch.randn(8, 4)
        loss = training.step(*([x] if here.first else []), target=target if here.last else None)
    training.save(os.environ["FOLDER"])
assert not torch.distributed.is_initialized()

if here.last:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    torch.manual_seed(1)
    model = [first, nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())]
    optimizer = torch.optim.AdamW([each for part in model for each in part.parameters()], lr=0.01)
    for step in range(20):
        torch.manual_seed(1000 + step)
        x, target = torch.randn(8, 4), torch.randn(8, 4)
        losses = []
        for number, (y, wanted) in enumerate(zip(x.chunk(4), target.chunk(4), strict=True)):
            for p, part in enumerate(model):
                with seeded(0, step, number, p):
                    y = part(y)
            losses.append(nn.functional.mse_loss(y, wanted))
        ordinary = torch.stack(losses).mean()
        ordinary.backward()
        optimizer.step()
        optimizer.zero_grad()
    print("off by", abs(ordinary.item() - loss.item()))
    assert abs(ordinary.item() - loss.item()) < 1e-6

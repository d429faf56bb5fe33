"""Megalens in a training loop of your own: two lines. Run ``python examples/plain_loop.py`` and watch it from JupyterLab."""

import torch

import megalens
from megalens import Tile
from megalens.demo import GPT, load_corpus
from megalens.demo.data import Windows


def main(steps: int = 300) -> None:
    """Train a small GPT for some steps."""
    torch.manual_seed(0)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    windows = Windows(load_corpus().train, model.config.sequence)

    # The first line. Nothing is hooked until a flag is chosen, here or later from the notebook.
    tracer = megalens.trace(model, name="plain-loop", flags={"MLP1_mat_mul": Tile(96)})

    for _ in range(steps):
        with tracer.step():  # The second line.
            loss = model.loss(windows.random(16))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            tracer.log(loss=loss.detach())

    tracer.close()


if __name__ == "__main__":
    main()

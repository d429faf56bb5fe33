"""A run's methods of this instrument: have its model write text, and read what it wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...protocol import GenerationRequest, Perturbation, replace_file
from ...runs.controls import build_perturb
from ...runs.errors import ClientError, as_arguments, as_int, bad_argument
from ...runs.query import LayerChoice
from .written_text import Generation, generations_of

if TYPE_CHECKING:
    from ...runs.run import Run

_Vector = npt.NDArray[np.float32]
_TILES = re.compile(r"Tile\(tiles=(\d+), reduction='mean'\)")


def save_direction(
    path: str | Path, vectors: npt.ArrayLike, metadata: Mapping[str, Any] | None = None
) -> Path:
    """Write a direction to a ``.safetensors`` file that ``Projection`` and ``AddVector`` read.

    Parameters
    ----------
    path : str or Path
        The file. To be read its folder must be among the run's ``vectors_folders``.
    vectors : array
        ``[hidden]`` for all layers alike, or ``[layers, hidden]``; of numpy, of torch or lists. Written as
        float32 and not scaled.
    metadata : mapping, optional
        What it is of, kept in the file as text.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ClientError
        ``bad-parameter``, for another ending, another shape, or values that are not finite.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise bad_argument("path", "a file name that ends in .safetensors", path.name)
    given: Any = vectors
    if hasattr(given, "detach"):
        given = given.detach().float().cpu().numpy()
    try:
        with np.errstate(over="ignore"):
            array = np.array(given, dtype="<f4", order="C")
    except (TypeError, ValueError) as error:
        raise bad_argument("vectors", "numbers, [hidden] or [layers, hidden]", vectors) from error
    if array.ndim not in (1, 2) or array.size == 0:
        raise bad_argument("vectors", "[hidden] or [layers, hidden]", list(array.shape))
    if not np.isfinite(array).all():
        raise bad_argument("vectors", "finite float32 numbers", "some that are not")
    notes = {str(name): str(value) for name, value in (metadata or {}).items()}
    header = json.dumps(
        {
            "__metadata__": {"made_by": "megalens", **notes},
            "vectors": {"dtype": "F32", "shape": list(array.shape), "data_offsets": [0, array.nbytes]},
        }
    ).encode()
    # The format has its numbers begin at a multiple of 8 bytes.
    header += b" " * (-len(header) % 8)
    replace_file(path, len(header).to_bytes(8, "little") + header + array.tobytes())
    return path


def _traced(run: Run, flag: str, layer: int, number: int, part: str | None) -> tuple[str, int]:
    """Return the compressor of a generation's rows, and the features of the uncompressed tensor."""
    steps = run.generation(number).tokens()["tensor_step"]
    rows = run.tensors(flag, layers=layer, part=part, steps=int(steps.max()), phase="generate")
    [row] = rows.slice(0, 1).select(["compressor", "source_shape"]).to_pylist()
    return str(row["compressor"]), int(row["source_shape"][-1])


def _widened(direction: _Vector, compressor: str, features: int, flag: str) -> _Vector:
    """Return a direction among all features; each feature of a tile has the tile's mean."""
    if len(direction) == features:
        return direction
    tiles = _TILES.search(compressor)
    if tiles is None:
        raise ClientError(
            f"{flag} was traced with {compressor}, which keeps no features of it. Trace it with NoOp, or "
            "with the mean of tiles.",
            code="bad-parameter",
            field="flag",
        )
    return np.repeat(direction, -(-features // int(tiles[1])))[:features]


def _coordinates(token: Sequence[int], numbers: Sequence[int]) -> tuple[int, int, int]:
    try:
        parts = [int(as_int(each, "tokens")) for each in token]
    except TypeError as error:
        raise bad_argument("tokens", "pairs (sequence, position)", token) from error
    if len(parts) == 2 and len(numbers) == 1:
        return numbers[0], parts[0], parts[1]
    if len(parts) == 3 and parts[0] in numbers:
        return parts[0], parts[1], parts[2]
    expected = (
        "pairs (sequence, position)"
        if len(numbers) == 1
        else "triples (generation, sequence, position) of these generations"
    )
    raise bad_argument("tokens", expected, tuple(token))


def generate(
    run: Run,
    prompts: str | Sequence[str],
    tokens: int = 64,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    samples: int = 1,
    stop: str | Sequence[str] = (),
    stop_tokens: Sequence[int] | None = None,
    candidates: int = 20,
    attention: bool = False,
    lens: int = 0,
    perturb: Any = None,
    layers: LayerChoice = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    wait: bool = True,
    timeout: float | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Generation:
    """Have the model write text: of a lab (:func:`megalens.serve`), or of a training that allows it
    (``allow=["generate"]``), between two steps.

    Parameters
    ----------
    prompts : str or sequence of str
        1 to 128 texts to go on from, of any lengths.
    tokens : int
        Tokens to write, at most. 0 only reads the prompts: their probabilities, their tensors.
    temperature : float
        Logits are divided by it; 0 always takes the most probable token.
    top_k, top_p : int, float
        Draw from the k most probable tokens, from the fewest that reach the probability p together; 0 and 1
        leave all.
    seed : int
        The same seed draws the same tokens.
    samples : int
        Texts for each prompt.
    stop : str or sequence of str
        A sequence ends once its new text has one of these in it.
    stop_tokens : sequence of int, optional
        A sequence ends after one of these; the tokenizer's end of text when absent.
    candidates : int
        Candidates to keep of each position.
    attention : bool
        Also trace attention probabilities.
    lens : int
        Candidates to read from each layer's hidden state (logit lens).
    perturb : Perturbation or mapping, optional
        Write the text twice, clean and perturbed, and compare: a kind such as ``Noise1(0.1)`` (between
        layers), or by site as in :meth:`perturb`; or a whole ``Perturb`` object, with ``sites`` and ``seed``.
    layers : optional
        Layers of the perturbation that do not say their own; all when absent.
    sweep : mapping, optional
        Repeat the perturbation with other settings: ``{"coefficient": [0.01, 0.1, 1.0]}``, ``{"layers": ["0",
        "1", "2-3"]}`` or ``{"site": ["system", "calculation"]}``.
    wait : bool
        Whether to return when all is written, or at once.
    timeout : float, optional
        Seconds to wait; for ever when absent.
    progress : callable, optional
        Called with (tokens so far, tokens at most); raise from it to stop waiting.

    Returns
    -------
    Generation
        Texts, tokens and tensors. Under a perturbation the perturbed one; its ``control`` is the clean one.

    Raises
    ------
    ClientError, ProtocolError
        With the argument or field at fault; ``failed`` with the reason when the model could not do it.
    """
    request = _request_of(
        prompts,
        perturb,
        layers,
        sweep,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        samples=samples,
        stop=stop,
        stop_tokens=stop_tokens,
        candidates=candidates,
        attention=attention,
        lens=lens,
    )
    answer = run._request(
        {"type": "generate", "id": "-", "request": request.to_message()},
        30.0 if timeout is None else timeout,
    )
    asked = Generation(run, answer["generation"])
    return asked.wait(timeout, progress=progress) if wait else asked


def generation(run: Run, number: int | None = None) -> Generation:
    """Return one generation by its number; the newest when absent.

    Raises
    ------
    ClientError
        ``not-found``, naming those that there are.
    """
    if number is None:
        numbers = generations_of(run)
        if not numbers:
            raise ClientError(
                f"{run.name} has no generations. lab = megalens.serve(model, tokenizer) makes some.",
                code="not-found",
            )
        number = numbers[-1]
    asked = Generation(run, as_int(number, "number", 1))
    # Raises where there is none.
    _ = asked.state
    return asked


def _generations(run: Run) -> list[Generation]:
    """Every generation of the run, by number."""
    return [Generation(run, number) for number in generations_of(run)]


def direction(
    run: Run,
    flag: str,
    layer: int,
    generation: int | Sequence[int],
    tokens: Sequence[Sequence[int]],
    *,
    part: str | None = None,
) -> npt.NDArray[np.float32]:
    """Return the way to a group of tokens: the mean of their vectors less the mean of all others'.
    :func:`megalens.save_direction` saves it.

    Parameters
    ----------
    flag : str
        Trace point by name, with a vector for each position.
    layer : int
        Layer, counted from 0.
    generation : int or sequence of int
        Generations whose tokens are compared.
    tokens : sequence
        The group, as pairs (sequence, position); of several generations as triples (generation, sequence,
        position).
    part : str, optional
        Named part; the first that there is when absent.

    Returns
    -------
    numpy.ndarray
        float32 ``[features]``, as many as the tensor has. Where means of tiles were kept, each feature of a
        tile has its tile's mean: what is known of the direction. Positions that were not read, and vectors
        that are not finite, are left out.

    Raises
    ------
    ClientError
        ``bad-parameter`` or ``not-found``, naming the argument.
    """
    numbers = [generation] if isinstance(generation, int) else list(generation)
    group = {_coordinates(token, numbers) for token in tokens}
    chosen: list[_Vector] = []
    others: list[_Vector] = []
    missing = set(group)
    for number in numbers:
        text = run.generation(number)
        for sequence in range(len(text.prompts)):
            vectors = text.array(flag, layer, sequence, part=part)
            if vectors.ndim != 2:
                raise bad_argument(
                    "flag", "a trace point with a vector for each position, such as 'HiddenStates'", flag
                )
            for position in range(len(vectors)):
                key = (number, sequence, position)
                missing.discard(key)
                if np.isfinite(vectors[position]).all():
                    (chosen if key in group else others).append(vectors[position])
    if missing:
        number, sequence, position = min(missing)
        raise ClientError(
            f"Generation {number} has no position {position} in sequence {sequence}.",
            code="not-found",
            field="tokens",
        )
    if not chosen or not others:
        which = "tokens of the group" if not chosen else "tokens beside the group"
        raise ClientError(
            f"There are no {which} with finite vectors of {flag} of layer {layer}, and the direction goes "
            "from those beside the group to it.",
            code="not-found",
            field="tokens",
        )
    apart = np.mean(chosen, axis=0, dtype=np.float64) - np.mean(others, axis=0, dtype=np.float64)
    return _widened(np.asarray(apart, np.float32), *_traced(run, flag, layer, numbers[0], part), flag)


def _request_of(
    prompts: str | Sequence[str],
    perturb: Any,
    layers: LayerChoice,
    sweep: Mapping[str, Sequence[Any]] | None,
    **asked: Any,
) -> GenerationRequest:
    """Return the request of a person's arguments; errors are in the words of the call."""
    message: dict[str, Any] = {"prompts": [prompts] if isinstance(prompts, str) else prompts, **asked}
    for name in ("prompts", "stop", "stop_tokens"):
        value = message.get(name)
        message[name] = [value] if isinstance(value, str) else value if value is None else list(value)
    if perturb is not None:
        sites = {"system": perturb} if isinstance(perturb, (Perturbation, str)) else perturb
        is_complete_setting = isinstance(sites, Mapping) and "sites" in sites
        message["perturb"] = dict(sites) if is_complete_setting else build_perturb(sites, layers=layers)
    if sweep is not None:
        if not isinstance(sweep, Mapping) or len(sweep) != 1:
            raise bad_argument(
                "sweep", "a dict of one thing that is varied, such as {'coefficient': [0.01, 0.1]}", sweep
            )
        [(over, values)] = sweep.items()
        message["sweep"] = {"over": over, "values": list(values)}
    with as_arguments():
        return GenerationRequest.from_message(
            {name: value for name, value in message.items() if value is not None}, "generate"
        )


generations = property(_generations)

"""What the demo has its model write by itself, so that every view of generated text has something to show."""

from __future__ import annotations

import contextlib

from ..protocol import ProtocolError
from ..protocol.messages_generated import GenerateRequest
from ..protocol.version import own_version
from ..tracer import Tracer

__all__ = ["PROMPT", "TEXT_EVERY", "ask_for_text"]

PROMPT = "The "
TEXT_EVERY = 100
"""Steps from one text to the next. It is the same request each time, so that step 100 and step 900 can be laid side by side."""
_TEXT: GenerateRequest = {
    "prompts": [PROMPT],
    "tokens": 48,
    "temperature": 0.8,
    "attention": True,
    "lens": 5,
}
_PERTURBED: GenerateRequest = {
    **_TEXT,
    "perturb": {"sites": {"system": {"kind": {"name": "noise1", "params": {"coefficient": 0.3}}}}},
}
_PERTURBED_AT = 100
"""Once is enough: each perturbed text has a clean one beside it, which would stand twice in the list of all."""


def ask_for_text(tracer: Tracer, step: int) -> None:
    """Queue the text of a step, as a viewer would; it is written before the next step. Nothing where that is not allowed."""
    writer = tracer.instrument("generation")
    if writer is None:
        return
    # The plain one comes last: views that follow the newest show it.
    for request in (_PERTURBED, _TEXT) if step == _PERTURBED_AT else (_TEXT,):
        # Viewers may have filled the queue.
        with contextlib.suppress(ProtocolError):
            writer.asked(
                {
                    "type": "generate",
                    "id": "demo",
                    "request": request,
                    "by": {"name": "demo", "version": own_version()},
                }
            )

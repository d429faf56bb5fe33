"""What every endpoint shares, here and in the reading process: JSON in, JSON or an error out."""

from __future__ import annotations

import json
import math
from typing import Any

from tornado.web import HTTPError, RequestHandler

from ..protocol import ProtocolError, parse_json
from ..runs import ClientError
from .errors import ServerError

# A report of a hundred views with all their options is a tenth of it.
MOST_BODY = 1 << 20
_CODES = {
    400: "bad-parameter",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "refused",
    413: "too-large",
}
_TEXTS = {
    401: "Log in to Jupyter again.",
    403: "Jupyter did not accept this request: log in again, and send the XSRF token with writes.",
    404: "There is nothing here.",
    405: "This address does not take that method.",
}
_CLIENT_STATUS = {
    "not-found": 404,
    "bad-parameter": 400,
    "version-mismatch": 409,
    "unreadable": 409,
    "unauthorized": 502,
    "disconnected": 502,
    "not-installed": 409,
    "too-large": 413,
    "mixed": 400,
    "closed": 409,
    "cancelled": 499,
}


class JsonRequests(RequestHandler):
    """A handler that takes and gives JSON."""

    def checked_body(self) -> bytes:
        """Return the body as it came; raises ``ServerError`` 413 before anything is parsed."""
        if len(self.request.body) > MOST_BODY:
            raise ServerError(
                413,
                "too-large",
                f"The body of this request must have at most {MOST_BODY:,} bytes, got "
                f"{len(self.request.body):,}.",
            )
        return self.request.body

    def json_body(self) -> dict[str, Any]:
        """Return the body, a JSON object; raises ``ServerError`` 400 or 413 for anything else."""
        text = self.checked_body()
        try:
            body = parse_json(text)
        except ValueError as error:
            raise ServerError(
                400,
                "bad-message",
                f"The body of this request must be a JSON object: {error}.",
                _odd_member(text),
            ) from error
        if not isinstance(body, dict):
            raise ServerError(400, "bad-message", "The body of this request must be a JSON object.")
        return body

    def answer(self, body: dict[str, Any]) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(body, ensure_ascii=False, allow_nan=False))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer any error as ``{code, message, field?}``, with nothing that this server did not write."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        refusal = _refusal(error, status_code)
        self.set_status(refusal.status if refusal.status != 499 else 400)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(refusal.to_json(), ensure_ascii=False))

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """Log unexpected errors only; a refusal needs no traceback."""
        if not isinstance(error, (ServerError, ClientError, ProtocolError, MemoryError)):
            super().log_exception(kind, error, trace)


def _odd_member(text: bytes) -> str | None:
    """Return the member of a refused body that is no finite number, if that is the reason."""
    try:
        members = json.loads(text).items()
    except (ValueError, RecursionError, AttributeError):
        return None
    return next(
        (name for name, value in members if isinstance(value, float) and not math.isfinite(value)), None
    )


def _refusal(error: BaseException | None, status: int) -> ServerError:
    if isinstance(error, ServerError):
        return error
    if isinstance(error, ClientError):
        return ServerError(_CLIENT_STATUS.get(error.code, 502), error.code, error.message, error.field)
    if isinstance(error, ProtocolError):
        return ServerError(400, error.code, error.message, error.field)
    if isinstance(error, MemoryError):
        return ServerError(
            413,
            "too-large",
            "Reading this needs more memory than reading may take. Ask for fewer steps or layers, or raise "
            "MegalensExtension.reader_memory.",
        )
    if isinstance(error, HTTPError) or error is None:
        return ServerError(
            status, _CODES.get(status, "internal"), _TEXTS.get(status, f"Jupyter answered {status}.")
        )
    return ServerError(500, "internal", "The Jupyter server met an error of its own. Its log says more.")

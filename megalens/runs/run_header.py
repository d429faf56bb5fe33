"""What ``run.json`` of a run folder says, checked once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

from ..protocol import ProtocolError, check_definition, read_json_file, shown_text
from ..protocol.messages_generated import RunFile
from .errors import ClientError

__all__ = ["read_header", "unreadable"]

_FORMAT = 2
_MAX_HEADER_BYTES = 8 * 1024 * 1024


def read_header(path: Path) -> RunFile:
    """Read ``run.json`` and check all of it, so that nobody has to look at one of its values again."""
    try:
        # What reads Arrow files takes paths as text.
        os.fspath(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise unreadable(f"Its path must be UTF-8 text, got {shown_text(str(path), 200)}.") from error
    try:
        header = read_json_file(path / "run.json", _MAX_HEADER_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "holds no run.json" if path.exists() else "does not exist"
        raise ClientError(
            f"{shown_text(path.name or str(path), 200)} {what}. Give the folder of one recorded run, such as megalens-runs/<run id>."
        ) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise unreadable(f"run.json: {reason}.") from error
    if not isinstance(header, dict):
        raise unreadable("run.json does not hold a JSON object.")
    found = header.get("format")
    if type(found) is int and found > _FORMAT:
        raise ClientError(
            f"This run folder is of format {found}; this version of Megalens reads up to format {_FORMAT}. Update megalens.",
            code="version-mismatch",
            field="format",
        )
    try:
        check_definition("RunFile", header, "run.json")
    except ProtocolError as error:
        raise unreadable(error.message, error.field) from error
    for first, last in header.get("missing_steps", ()):
        if first > last:
            raise unreadable(
                f"run.json.missing_steps must hold first and last steps, got {first} to {last}.",
                "run.json.missing_steps",
            )
    return cast("RunFile", header)


def unreadable(reason: str, field: str | None = None) -> ClientError:
    """Return the error for a run folder that cannot be read."""
    return ClientError(f"Could not read the run folder. {reason}", code="unreadable", field=field)

"""What is asked of the rows of a run, checked against ``requests.schema.json`` where it comes in."""

from __future__ import annotations

import json
import re
from functools import cache, reduce
from typing import Any, TypeVar

from .contract import SchemaCheck, contract_json, schema_check
from .errors import ProtocolError

__all__ = ["check_request"]

_T = TypeVar("_T")
_MEMBER = re.compile(
    r"has a member that is not known here, ['\"](.*)['\"]$|lacks the member (\w+)$", re.DOTALL
)


def check_request(kind: type[_T], value: Any) -> _T:
    """Return a request from outside, as it is.

    Parameters
    ----------
    kind : type
        One of the requests of ``requests.schema.json``: ``StreamRequest``, ``MomentGroupsRequest``, ….

    Raises
    ------
    ProtocolError
        ``bad-parameter`` with the dotted field at fault.
    """
    check, properties = _known(kind.__name__)
    misfit = check(value)
    if misfit is None:
        found: _T = value
        return found
    path, words = [str(part) for part in misfit.path], misfit.words
    if member := _MEMBER.search(words):
        # The member is at fault, not what has it.
        path.append(member[1] if member[2] is None else member[2])
        words = "is not known here" if member[2] is None else "must be given"
        words += "" if len(path) > 1 else f". A request may have {', '.join(properties)}"
    field = ".".join(path)[:100]
    raise ProtocolError(
        "bad-parameter",
        f"{field or ('The request' if not path else 'A member without a name')} {words}.",
        field=field or None,
    )


@cache
def _known(name: str) -> tuple[SchemaCheck, list[str]]:
    schema, views = contract_json("requests.schema.json"), contract_json("views.schema.json")
    # No name is in both files. A reference to the other file is a name of its own.
    definitions = {**views["$defs"], **schema["$defs"]}
    for reference in re.findall(r'"(views\.schema\.json#/[^"]+)"', json.dumps(schema)):
        path = reference.split("/")[1:]
        definitions[reference] = reduce(lambda node, part: node[part], path, views)
    check = schema_check({"$ref": f"#/$defs/{name}"}, definitions, whole=True)
    return check, list(schema["$defs"][name]["properties"])

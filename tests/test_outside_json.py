"""JSON that others wrote goes through ``parse_json``; every other place that parses JSON is named here with whose text it is."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1] / "megalens"
ALLOWED = {
    "runs/moments/jsonl/chunk.py": "another logger's lines, which have bare NaN; each value is checked where it is read",
    "runs/moments/jsonl/ingest.py": "between this package's own processes",
    "runs/moments/jsonl/imported_file.py": "this package's own cache; anything odd has the file parsed anew",
    "runs/moments/trainermon/imported_folder.py": "this package's own cache; anything odd has the files parsed anew",
    "hub/dialects/peer_message.py": "a foreign hub's, which has bare NaN; each value is checked where it is read",
    "hub/sealer.py": "between this package's own processes",
    "hub/sealing.py": "between this package's own processes",
    "pictures/engine/child.py": "between this package's own processes",
    "instruments/generation/megatron.py": "between the ranks of one job",
    "instruments/timeline/flight_pickle.py": "a memory snapshot, in a process of its own with the standard library alone, bounded in memory and time",
    "instruments/generation/texts.py": "what the tokenizers package says of its own decoder",
    "adapters/torch_pipeline.py": "between the ranks of one job",
    "protocol/contract.py": "a file of this package",
    "protocol/outside.py": "parse_json itself",
    "pictures/report/build.py": "a file of this package",
    "server/json_requests.py": "a body that parse_json refused, to name the member at fault",
    "server/reader/__main__.py": "between this package's own processes",
    "server/reader/courses_handler.py": "between this package's own processes",
    "server/reader/process.py": "between this package's own processes",
    "server/reader/read_handler.py": "between this package's own processes",
    "server/reader/runs_handlers.py": "between this package's own processes",
    "tracer/moments/collector.py": "between the ranks of one job, which have proved to be that",
    "tracer/sending/hub_process.py": "the line of a hub that this process started",
    "tracer/sending/peers/channel.py": "between the ranks of one job; strangers may send 4 KiB, and are only asked for an answer",
}


def parses_json(path):
    text = path.read_text(encoding="utf-8")
    return "json" in text and any(
        isinstance(node, ast.Attribute)
        and node.attr in ("loads", "load", "JSONDecoder")
        and ast.unparse(node.value) in ("json", "orjson")
        for node in ast.walk(ast.parse(text))
    )


def test_json_of_others_is_parsed_in_one_place():
    found = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if parses_json(path)}
    assert found == set(ALLOWED)

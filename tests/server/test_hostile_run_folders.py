"""What somebody else wrote into the folders of runs hides that one run, and nothing else."""

import json
import logging
import os
import shutil

import pytest
from hostile_folders import ODD_VALUES, mutated_header, odd_paths, with_text
from recorded_run import RUN_ID, write_run

from megalens.runs import ClientError, RunFolder
from megalens.server.registry import RunRegistry

GOOD = "good-run"


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("template") / RUN_ID, steps=3)


@pytest.fixture
def root(tmp_path, template, monkeypatch):
    """A root with one good run in it and one to be spoilt; hubs that others run on this machine are not seen."""
    monkeypatch.setenv("MEGALENS_RUNTIME_DIR", str(tmp_path / "hubs"))
    root = tmp_path / "root"
    for name in (GOOD, RUN_ID):
        shutil.copytree(template, root / "megalens-runs" / name)
    edit(root / "megalens-runs" / GOOD, run={"id": GOOD, "name": GOOD, "started": 1.5})
    return root


def edit(folder, **changes):
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, **changes}))


def registry_of(root, *folders):
    return RunRegistry(root, folders or ["megalens-runs"], [], logging.getLogger("test"))


def listing_of(root, *folders):
    """Return the list of runs as it is sent."""
    listing = registry_of(root, *folders).listing()
    return json.loads(json.dumps(listing, ensure_ascii=False, allow_nan=False).encode("utf-8"))


def described(folder):
    """Return all that the server tells of a run without its rows, as it is sent."""
    told = {"hello": folder.hello(), "status": folder.status(), "truncated": folder.truncated()}
    return json.dumps(told, ensure_ascii=False, allow_nan=False).encode("utf-8")


@pytest.mark.parametrize("member", ["started", "ended", "missing_steps", "last_step", "name", "every"])
def test_an_odd_value_hides_its_own_run_and_is_told(root, member):
    path = {
        "started": ("run", "started"),
        "ended": ("ended",),
        "missing_steps": ("missing_steps",),
        "last_step": ("streams", "tensors", "last_step"),
        "name": ("run", "name"),
        "every": ("config", "flags", "MLP1_mat_mul", "every"),
    }[member]
    good = {
        "ended": {"null"},
        "missing_steps": {"list"},
        "last_step": {"null"},
        "name": {"text", "zero byte"},
    }.get(member, set())
    run = root / "megalens-runs" / RUN_ID / "run.json"
    header = json.loads(run.read_text())
    header["config"]["flags"]["MLP1_mat_mul"]["every"] = 1
    for name, text in ODD_VALUES.items():
        run.write_text(with_text(header, path, text))
        listing = listing_of(root)
        wanted = {GOOD, RUN_ID} if name in good else {GOOD}
        assert {entry["id"] for entry in listing["runs"]} == wanted, name
        assert len(listing["warnings"]) == 2 - len(wanted), name
        assert all(line.startswith(f"megalens-runs/{RUN_ID}: Could not read") for line in listing["warnings"])
        assert all(len(line) < 1500 for line in listing["warnings"])


def test_a_header_is_bounded_before_it_is_parsed(root):
    path = root / "megalens-runs" / RUN_ID / "run.json"
    for most, ids in ((0, {GOOD, RUN_ID}), (1, {GOOD})):
        path.write_text(path.read_text().rstrip().ljust((8 << 20) + most))
        assert {entry["id"] for entry in listing_of(root)["runs"]} == ids


@pytest.mark.slow
def test_headers_with_any_values_exchanged_are_read_or_refused(root):
    folder = root / "megalens-runs" / RUN_ID
    header = json.loads((folder / "run.json").read_text())
    header["statistics"] = {"grad": 5}
    header["announced"] = {
        "norms": {"title": "x", "fields": [{"name": "step", "type": "int64"}], "policy": {"keep": "newest"}}
    }
    codes = []
    for number in range(120):
        (folder / "run.json").write_text(mutated_header(header, number), errors="surrogatepass")
        listing_of(root)
        try:
            described(RunFolder(folder))
            codes.append("read")
        except ClientError as error:
            codes.append(error.code)
    assert set(codes) <= {"read", "unreadable", "version-mismatch"}
    assert 5 < codes.count("read") < 90


def test_members_of_a_later_version_are_left_alone(root):
    edit(
        root / "megalens-runs" / RUN_ID,
        later={"deep": [1, {"x": None}]},
        state="sleeping",
        missing_steps=[[3, 3], [0, 2**53 - 1]],
    )
    listing = listing_of(root)
    assert ({entry["id"] for entry in listing["runs"]}, listing["warnings"]) == ({GOOD, RUN_ID}, [])
    assert RunFolder(root / "megalens-runs" / RUN_ID).state == "lost"


def test_names_pipes_links_and_folders_hide_nothing(root, monkeypatch):
    monkeypatch.chdir(root)
    odd_paths(root / "megalens-runs")
    listing = listing_of(root)
    assert {entry["id"] for entry in listing["runs"]} == {GOOD, RUN_ID}
    assert listing["warnings"]
    assert all(line.isprintable() for line in listing["warnings"])


def test_a_run_whose_folder_has_a_name_that_is_no_text_is_left_out(root):
    folder = root / "megalens-runs" / RUN_ID
    os.rename(folder, os.fsencode(folder) + b"\xff")
    listing = listing_of(root)
    assert [entry["id"] for entry in listing["runs"]] == [GOOD]
    assert "must be UTF-8 text" in listing["warnings"][0]


def test_a_link_that_leads_out_of_the_run_folders_is_neither_listed_nor_opened(root, template, tmp_path):
    runs = root / "megalens-runs"
    shutil.rmtree(runs / RUN_ID)
    (runs / "link").symlink_to(template)
    listing = listing_of(root)
    assert [entry["id"] for entry in listing["runs"]] == [GOOD]
    assert listing["warnings"] == [
        "megalens-runs/link is a link that leads out of the run folders, and is not followed."
    ]
    with pytest.raises(Exception, match="There is no run") as caught:
        registry_of(root).folder(RUN_ID)
    assert caught.value.status == 404
    # To where it leads the administrator may point, and a link within the root leads nowhere else.
    assert {entry["id"] for entry in listing_of(root, "megalens-runs", str(template.parent))["runs"]} == {
        GOOD,
        RUN_ID,
    }
    shutil.copytree(template, root / "kept")
    (runs / "link").unlink()
    (runs / "link").symlink_to(root / "kept")
    assert {entry["id"] for entry in listing_of(root)["runs"]} == {GOOD, RUN_ID}
    # The folder that the administrator names may itself be a link.
    (root / "elsewhere").symlink_to(template.parent)
    assert {entry["id"] for entry in listing_of(root, "elsewhere")["runs"]} == {RUN_ID}


def test_a_run_json_that_is_a_link_is_not_followed(root, template):
    run = root / "megalens-runs" / RUN_ID / "run.json"
    run.unlink()
    run.symlink_to(template / "run.json")
    listing = listing_of(root)
    assert [entry["id"] for entry in listing["runs"]] == [GOOD]
    assert "run.json: it must be a plain file" in listing["warnings"][0]

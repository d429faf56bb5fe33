"""Models from folders."""

import json
import shutil

import pytest
import torch
from writers import byte_fallback, byte_level, demo, hugging_face

from megalens.demo.model import CONFIG, CheckpointError, load_checkpoint, save_checkpoint
from megalens.instruments.generation import GenerationError
from megalens.instruments.generation.serving import load_folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder that save_pretrained wrote."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    hugging_face("Llama").save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return folder


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of it to spoil."""
    return shutil.copytree(saved, tmp_path / "copied")


def test_a_folder_of_hugging_face_gives_its_model_and_its_tokenizer(saved):
    model = load_folder(saved)
    own = hugging_face("Llama").state_dict()
    assert all(torch.equal(own[name], value) for name, value in model.module.state_dict().items())
    assert model.texts.decode(model.texts.encode("The cat")) == "The cat"
    assert (model.vocabulary, model.context, model.slides) == (300, 64, False)
    assert model.end_tokens == {0}
    assert not any(each.training for each in model.module.modules())


def test_a_checkpoint_of_the_demo_comes_back_bit_for_bit(tmp_path):
    model = demo(layers=3)
    save_checkpoint(model, tmp_path / "new" / "demo")
    loaded = load_folder(tmp_path / "new" / "demo")
    assert loaded.module.config == model.config
    assert all(
        torch.equal(value, loaded.module.state_dict()[name]) for name, value in model.state_dict().items()
    )
    assert (loaded.vocabulary, loaded.context, loaded.slides) == (256, 16, True)
    save_checkpoint(demo(layers=1), tmp_path / "new" / "demo")
    assert load_checkpoint(tmp_path / "new" / "demo").config.layers == 1


def test_what_is_no_folder_is_named(tmp_path):
    with pytest.raises(GenerationError, match="'gpt2' is not there"):
        load_folder("gpt2")
    (tmp_path / "file").write_text("")
    with pytest.raises(GenerationError, match="is a file"):
        load_folder(tmp_path / "file")


def test_a_folder_without_a_model_says_what_one_has(tmp_path):
    with pytest.raises(GenerationError, match=r"holds no model: expected config\.json with \*\.safetensors"):
        load_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(GenerationError, match="holds no model"):
        load_folder(tmp_path)


def test_a_folder_without_a_tokenizer_says_so_and_takes_one(copied):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (copied / name).unlink()
    with pytest.raises(GenerationError, match="The tokenizer of copied cannot be loaded"):
        load_folder(copied)
    assert load_folder(copied, byte_level()).vocabulary == 300


def test_a_tokenizer_of_another_vocabulary_is_named(copied):
    config = json.loads((copied / "config.json").read_text())
    config["vocab_size"] = 200
    (copied / "config.json").write_text(json.dumps(config))
    hugging_face("Llama", vocab_size=200).save_pretrained(copied)
    with pytest.raises(GenerationError, match=r"another vocabulary.*280 tokens, and the model 200"):
        load_folder(copied)
    with pytest.raises(GenerationError, match="another vocabulary"):
        load_folder(copied, byte_fallback())


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_folder_whose_files_are_damaged_says_so(copied, name):
    path = copied / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(GenerationError, match="of copied cannot be loaded"):
        load_folder(copied)


def test_no_code_of_a_folder_is_run(copied):
    config = json.loads((copied / "config.json").read_text())
    config |= {"model_type": "odd", "auto_map": {"AutoConfig": "odd.Odd", "AutoModelForCausalLM": "odd.Odd"}}
    (copied / "config.json").write_text(json.dumps(config))
    (copied / "odd.py").write_text(f"open({str(copied / 'ran')!r}, 'w').close()\nclass Odd: pass\n")
    with pytest.raises(GenerationError, match="cannot be loaded"):
        load_folder(copied, byte_level())
    assert not (copied / "ran").exists()


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"layers": 0}, "layers in .* must be 1 to 1048576, got 0"),
        ({"layers": 2.5}, "must be 1 to"),
        ({"hidden": 33}, "multiple of heads, 2, got 33"),
        ({"hidden": 1 << 20, "layers": 1 << 20}, "too large"),
        ({"sequence": 1 << 20}, "too large"),
        ({"odd": 1}, "must have vocabulary, layers"),
        ({"layers": 3}, "Missing key|Error"),
    ],
)
def test_a_checkpoint_of_the_demo_with_absurd_sizes_is_refused(tmp_path, config, sentence):
    save_checkpoint(demo(), tmp_path)
    sizes = json.loads((tmp_path / CONFIG).read_text())
    (tmp_path / CONFIG).write_text(json.dumps({**sizes, **config}))
    with pytest.raises(CheckpointError, match=sentence):
        load_checkpoint(tmp_path)
    with pytest.raises(GenerationError, match=sentence):
        load_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff" * 50, b"null"])
def test_a_checkpoint_of_the_demo_that_is_damaged_is_refused(tmp_path, content):
    for name in (CONFIG, "model.safetensors"):
        save_checkpoint(demo(), tmp_path)
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError):
            load_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError):
        load_checkpoint(tmp_path)

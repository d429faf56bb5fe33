"""Texts of ids: whole characters, honest pieces."""

import pytest
from writers import END, TEXTS, byte_fallback, byte_level, words

from megalens.demo.model import ByteTokenizer
from megalens.instruments.generation import GenerationError, Texts

BYTES = {"byte level": byte_level, "byte fallback": byte_fallback, "the demo's": ByteTokenizer}


class Letters:
    """A tokenizer of one's own, with no more than encode and decode."""

    def encode(self, text):
        return [ord(letter) for letter in text]

    def decode(self, ids):
        return "".join(chr(each) for each in ids)


@pytest.mark.parametrize("name", BYTES)
def test_a_character_comes_whole_with_its_last_byte_and_its_pieces_are_its_bytes(name):
    texts = Texts(BYTES[name]())
    ids = texts.encode("€🙂")
    while texts.piece(ids[0]) != "<0xE2>":
        # Sentencepiece begins with a space.
        ids = ids[1:]
    assert [texts.piece(each) for each in ids] == [f"<0x{byte:02X}>" for byte in "€🙂".encode()]
    stream = texts.stream()
    assert [stream.push(each) for each in ids] == ["", "", "€", "", "", "", "🙂"]


@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back_as_it_was_token_by_token(name, text):
    texts = Texts(BYTES[name]())
    assert texts.decode(texts.encode(text)) == text


def test_what_a_tokenizer_of_words_decodes_to_comes_word_by_word():
    texts = Texts(words())
    ids = texts.encode("the cat sat on the mat")
    stream = texts.stream()
    assert [stream.push(each) for each in ids] == ["the", " cat", " sat", " on", " the", " mat"]
    long = ids * 20
    assert texts.decode(long) == " ".join(["the cat sat on the mat"] * 20)


def test_a_tokenizer_with_no_more_than_encode_and_decode_will_do():
    texts = Texts(Letters())
    assert texts.decode(texts.encode("Zwölf €")) == "Zwölf €"
    assert texts.piece(ord("€")) == "€"


def test_a_character_that_never_ends_gives_its_broken_bytes_once_something_else_comes():
    texts = Texts(ByteTokenizer())
    stream = texts.stream()
    assert [stream.push(each) for each in (0xE2, 0x82, ord("a"))] == ["", "", "\ufffda"]


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback(), ByteTokenizer(), words(), Letters()])
@pytest.mark.parametrize("token", [5_000_000, 2**31 - 1, 2**40, -1])
def test_an_id_that_nobody_knows_is_an_honest_piece_and_no_text(tokenizer, token):
    texts = Texts(tokenizer)
    assert texts.piece(token) == f"<unknown {token}>"
    assert texts.stream().push(token) == ""


def test_the_end_of_a_text_is_a_piece_and_no_text():
    tokenizer = byte_level()
    texts = Texts(tokenizer)
    assert texts.end_tokens == {tokenizer.eos_token_id}
    assert texts.piece(tokenizer.eos_token_id) == END
    assert texts.decode([*texts.encode("ab"), tokenizer.eos_token_id]) == "ab"


@pytest.mark.parametrize("tokenizer", [byte_level(), byte_fallback(), ByteTokenizer(), words()])
def test_half_a_character_in_a_prompt_is_named(tokenizer):
    with pytest.raises(GenerationError, match=r"half a character \(\\udc80\) at 2"):
        Texts(tokenizer).encode("ab\udc80")


def test_a_prompt_of_which_nothing_is_made_is_refused():
    class Nothing(Letters):
        def encode(self, text):
            return []

    with pytest.raises(GenerationError, match="makes no token"):
        Texts(Nothing()).encode("a")


def test_a_tokenizer_that_fails_is_named_with_its_reason():
    class Broken(Letters):
        def encode(self, text):
            raise KeyError("no vocabulary")

    with pytest.raises(GenerationError, match=r"Broken.*no vocabulary"):
        Texts(Broken()).encode("a")


def test_what_is_no_tokenizer_is_refused():
    with pytest.raises(GenerationError, match=r"encode\(text\) and decode\(ids\), got a dict"):
        Texts({})

"""A model folder in which something is wrong, on the command line: one line that says what, exit code 2."""

from hashlib import sha256

import pytest

from annotated.cli.main import main
from annotated.files import read_json, write_json
from annotated.storage.model_folder import CONFIG, WEIGHTS, save_model
from annotated.storage.tensor_files import read_tensors, write_tensors
from annotated.tokenizers import WordTokenizer
from annotated.transformer.model import make_model

BIAS = "generator.proj.bias"


def in_config(change):
    return lambda folder: write_json(folder / CONFIG, change(read_json(folder / CONFIG)))


def in_tokenizer(change):
    return lambda folder: write_json(folder / "tokenizer.json", change(read_json(folder / "tokenizer.json")))


def subwords_of_nothing(folder):
    (folder / "tokenizer.model").touch()
    write_json(folder / "tokenizer.json", {"kind": "sentencepiece", "sha256": sha256().hexdigest()})


def in_weights(change):
    return lambda folder: write_tensors(folder / WEIGHTS, change(read_tensors(folder / WEIGHTS)))


def overwritten(folder):
    """As a copy that reserved its room and was cut off."""
    size = (folder / WEIGHTS).stat().st_size
    with (folder / WEIGHTS).open("r+b") as file:
        file.seek(size - 50)
        file.write(bytes(50))


DAMAGE = {
    "half copied": (overwritten, "model.safetensors is damaged: its checksum differs"),
    "another version": (in_config(lambda c: {**c, "format": 99}), "format 99 is unknown"),
    "cut off": (
        lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-1]),
        "is not a whole safetensors file",
    ),
    "a language that nobody knows": (
        in_tokenizer(lambda t: {**t, "language": "xx-yy"}),
        "spaCy has no rules for the language 'xx-yy'",
    ),
    "no subwords": (subwords_of_nothing, "an empty file is not a SentencePiece model"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_wrong_is_said_in_one_line(name, tmp_path, capfd):
    words = WordTokenizer(["a", "b"], None)
    save_model(tmp_path, make_model(6, 6, N=1, d_model=8, d_ff=8, h=2), words, words)
    damage, says = DAMAGE[name]
    damage(tmp_path)
    for command in (["translate", "--model"], ["evaluate", "--model"], ["average", "--out", "x"]):
        assert main([*command, str(tmp_path)]) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert says in err

"""What a file claims takes no memory and no time: a model is as large as the weights that are there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from check.right import classic
from interop_models import classic_state
from safetensors.torch import save_file

from annotated.transformer.model import make_model
from annotated.translation.files import read_json, write_json
from annotated.translation.storage.model_folder import CONFIG, WEIGHTS, save_model
from annotated.translation.storage.tensor_files import read_tensors
from annotated.translation.tokenizers import WordTokenizer

MB = 2**20

# Loads the first path, which brings in all modules, then the others with so many bytes more than it has then.
READER = """
import json, resource, sys
from pathlib import Path
from annotated.translation.storage.model_folder import load_model
from annotated.translation.interop import load_classic

load = {"load_model": load_model, "load_classic": load_classic}[sys.argv[1]]
load(sys.argv[3])
has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (has + int(sys.argv[2]),) * 2)
said = []
for path in sys.argv[4:]:
    try:
        load(path)
        said.append("loaded")
    except BaseException as error:
        said.append(f"{type(error).__name__}: {error}")
print(json.dumps(said))
"""


def read(function, room, *paths):
    """What a process with little memory says of each path but the first, which is for warming up."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("the memory of a process is limited as Linux does it")
    command = [sys.executable, "-c", READER, function, str(room), *map(str, paths)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def check(said, expected):
    """Each is one line, which names what is wrong."""
    for found, wanted in zip(said, expected, strict=True):
        assert wanted in found
        assert "\n" not in found


CLAIMS = {  # settings, and what is said of them
    "layers": ({"N": 10**6}, "ValueError: {} holds 2,518 numbers, but the settings ask for about "),
    "vocabularies": ({"src_vocab": 10**7, "tgt_vocab": 10**7}, "but the settings ask for about 160,"),
    "width": ({"d_model": 2**31 - 2}, "but the settings ask for about "),
    "width beyond counting": ({"d_model": 10**30}, "d_model must be a whole number"),
    "inner width": ({"d_ff": 2 * 10**9}, "but the settings ask for about "),
    "sinusoids": ({"max_len": 5 * 10**6}, "loaded"),  # more are made when a sentence needs them
    "learned positions": ({"max_len": 10**8, "positions": "learned"}, "but the settings ask for about 1,"),
}


def test_a_config_claims_what_it_likes(tmp_path):
    words = WordTokenizer(["a", "b"], None)
    folders = [tmp_path / "good", *(tmp_path / name for name in CLAIMS)]
    for folder in folders:
        save_model(folder, make_model(6, 6, N=2, d_model=8, d_ff=8, h=2, tied_embeddings="all"), words, words)
        save_file(read_tensors(folder / WEIGHTS), folder / WEIGHTS)  # without checksums, which would find it
        settings = read_json(folder / CONFIG)
        settings["model"] |= CLAIMS.get(folder.name, [{}])[0]
        write_json(folder / CONFIG, settings)
    says = [text.replace("{}", str(folders[1] / WEIGHTS)) for _, text in CLAIMS.values()]
    check(read("load_model", 128 * MB, *folders), says)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_model_takes_its_weights_once(dtype, tmp_path):
    """The file, mapped, and the weights in float32. Two more tables are reserved before they are tied."""
    tokenizers = [WordTokenizer([str(i) for i in range(size)], None) for size in (2, 2**16 - 4)]
    for tokenizer in tokenizers:
        size = len(tokenizer)
        model = make_model(size, size, N=1, d_model=256, d_ff=8, h=2, tied_embeddings="all", max_len=10)
        save_model(tmp_path / str(size), model.to(dtype), tokenizer, tokenizer)
    small, large = (tmp_path / str(len(tokenizer)) for tokenizer in tokenizers)
    mapped = (large / WEIGHTS).stat().st_size
    taken = mapped * 4 // dtype.itemsize
    assert taken > 64 * MB
    assert read("load_model", mapped + 3 * taken + 32 * MB, small, large) == ["loaded"]


def test_a_file_of_torch_save_names_as_many_layers_as_it_likes(tmp_path):
    state = classic_state(classic.make_model(6, 6, N=2, d_model=8, d_ff=8, h=8))
    claims = {
        "encoder.layers.100000000.x": "but the settings ask for ",
        f"encoder.layers.{'1' * 5000}.x": "is not part of what the settings describe",
    }
    files = [tmp_path / "good", *(tmp_path / str(len(name)) for name in claims)]
    for file, name in zip(files, [next(iter(state)), *claims], strict=True):
        torch.save({name: torch.zeros(1), **state}, file)
    check(read("load_classic", 128 * MB, *files), claims.values())

"""Every command and every block of Python in README and in the pages about training and Python is right.

Commands that download or take over a minute are given to the argument parser; the others run, on a model
that was never trained.
"""

import importlib
import io
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from command_line import feed
from torch.distributed.run import get_args_parser

from annotated.transformer.model import EncoderDecoder, TransformerConfig
from annotated.translation.cli.main import main, parse
from annotated.translation.data import Corpus, multi30k
from annotated.translation.storage.model_folder import save_model
from annotated.translation.tokenizers import SentencePieceTokenizer

ROOT = Path(__file__).parents[2]
NAMES = ("README.md", *(f"tools/site/pages/{name}.md" for name in ("train", "recipes", "python")))
PAGES = [(ROOT / name).read_text(encoding="utf-8") for name in NAMES]
ENGLISH = ["A dog runs through the snow.", "Two men are sitting on a bench.", "", "A woman reads a book."]


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, each once."""
    pattern = re.compile(rf"^```{language}\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
    return list(dict.fromkeys(block for page in PAGES for block in pattern.findall(page)))


def commands() -> list[str]:
    """Each line of the shell blocks, without its comment."""
    lines = (line.partition("  #")[0].strip() for block in blocks("bash") for line in block.splitlines())
    return list(dict.fromkeys(lines))


@pytest.fixture
def first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models in runs/ that were never trained, and text for them; it is the current one."""
    tokenizer = SentencePieceTokenizer.train(ENGLISH * 3, 330)
    config = TransformerConfig.base(len(tokenizer), len(tokenizer), N=1, d_model=8, d_ff=8, h=1, max_len=64)
    for run in ("first", "mine"):
        save_model(tmp_path / "runs" / run, EncoderDecoder.from_config(config), tokenizer, tokenizer)
    for side in ("en", "de"):
        (tmp_path / f"test.{side}").write_text("A dog runs.\nTwo men sit.\n", encoding="utf-8")
    (tmp_path / "test.tsv").write_text("A dog runs.\tEin Hund rennt.\n", encoding="utf-8")
    (tmp_path / "en.txt").write_text("\n".join(ENGLISH) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("annotated")])
def test_the_parser_takes_the_command(command: str):
    words = shlex.split(command.partition("<")[0])
    assert parse(words[1:]).command.endswith(f":{words[1]}")


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("torchrun")])
def test_torchrun_takes_the_command(command: str):
    args = get_args_parser().parse_args(shlex.split(command)[1:])
    assert args.module
    assert args.training_script == "annotated"
    assert parse(args.training_script_args).command.endswith(":train")


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("annotated translate")])
def test_translate_gives_a_line_for_a_line(command: str, first_run: Path, monkeypatch, capfd):
    words = shlex.split(command.partition("<")[0])
    text = (first_run / "en.txt").read_text(encoding="utf-8")
    feed(monkeypatch, text.encode())
    assert main(words[1:]) == 0
    out = capfd.readouterr().out
    assert out.count("\n") == len(ENGLISH)
    assert out.split("\n")[2] == ""


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("annotated evaluate")])
def test_evaluate_scores(command: str, first_run: Path, multi30k_folder: Path, monkeypatch, capsys):
    corpus = multi30k("en-de")
    few = {name: text.take(range(4)) for name, text in corpus.splits.items()}
    monkeypatch.setattr(
        "annotated.translation.cli.evaluate.load_corpus", lambda *_: Corpus(corpus.name, "en", "de", few)
    )
    assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr().out
    assert "BLEU = " in printed
    assert "chrF2 = " in printed
    assert "perplexity = " in printed


@pytest.fixture
def hub(tmp_path: Path, monkeypatch) -> None:
    """A Hugging Face Hub of one folder on this disk."""
    folder = tmp_path / "hub"
    folder.mkdir()

    def upload_folder(folder_path: str, allow_patterns: list[str], **_: object) -> None:
        for file in (file for pattern in allow_patterns for file in Path(folder_path).glob(pattern)):
            shutil.copy(file, folder)

    monkeypatch.setattr("huggingface_hub.create_repo", lambda *_, **__: None)
    monkeypatch.setattr("huggingface_hub.upload_folder", upload_folder)
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda _: folder)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(code: str, first_run: Path, hub: None, monkeypatch):
    printed = io.StringIO()
    monkeypatch.setattr(sys, "stdout", printed)
    exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue().count("\n") == code.count("print(")


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "tools/README.md", "benchmarks/README.md"])
def test_its_links_lead_to_files(name: str):
    text = re.sub(r"`[^`]*`", "", (ROOT / name).read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_the_tables_are_those_of_the_shipped_models_and_the_records(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools/site")
    results = importlib.import_module("results")
    for path, tables in results.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert results.render(page, tables) == page, "python tools/site/results.py"

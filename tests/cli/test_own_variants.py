"""Variants of the model from a file of the user's: what the command line does with them, and what not."""

import pytest
import torch
from command_line import SIZES, complains, ends, feed

from annotated.transformer.variants import VARIANTS
from annotated.translation.cli.main import main
from annotated.translation.files import read_json
from annotated.translation.interop import to_torch
from annotated.translation.storage.model_folder import load_model

PARTS = """
from torch import nn

from annotated import Parts, variant
from beside import EPS


@variant("rms")
class RMS(Parts):
    def norm(self):
        return nn.RMSNorm(self.config.d_model, eps=EPS)
"""


@pytest.fixture
def registry(monkeypatch):
    """The variants that are known, without those of a test before."""

    def forget():
        VARIANTS.pop("rms", None)

    forget()
    yield forget
    forget()


@pytest.fixture
def parts(tmp_path):
    (tmp_path / "beside.py").write_text("EPS = 1e-6\n")
    (tmp_path / "torch.py").write_text(PARTS)  # a name that another module has
    return str(tmp_path / "torch.py")


def test_a_variant_is_trained_resumed_averaged_scored_and_used(
    parts, files, registry, tmp_path, capfd, monkeypatch
):
    run, variants = str(tmp_path / "run"), ["--variants", parts]
    sizes = [*SIZES.split(), "--max-tokens", "400", "--epochs", "2", "--save-every", "1", "--max-steps", "2"]
    complains(["train", *files, "--out", run, *sizes, *variants], capfd, "no effect without --variant")
    assert main(["train", *files, "--out", run, *sizes, "--variant", "rms", *variants]) == 0
    assert "variant rms: norm; " in capfd.readouterr().err
    assert main(["train", "--out", run, "--resume", "--max-steps", "3", *variants]) == 0
    model, *_ = load_model(run)
    kinds = {type(module) for module in model.modules()}
    assert torch.nn.RMSNorm in kinds
    assert torch.nn.LayerNorm not in kinds
    assert not [name for name in read_json(tmp_path / "run" / "training.json") if "variants" in name]
    checkpoints = sorted(str(folder) for folder in (tmp_path / "run" / "checkpoints").iterdir())
    assert main(["average", *checkpoints, "--out", str(tmp_path / "mean"), *variants]) == 0
    assert main(["evaluate", "--model", str(tmp_path / "mean"), *files, "--beam", "1", *variants]) == 0
    capfd.readouterr()
    feed(monkeypatch, b"cat 3 9\n")
    assert main(["translate", "--model", run, *variants]) == 0
    assert capfd.readouterr().out.count("\n") == 1
    for to in ("marian", "ctranslate2"):
        out = ["--out", tmp_path / "other", "--to", to]
        complains(["export", "--model", run, *out, *variants], capfd, "not the variant 'rms'")
        assert not (tmp_path / "other").exists()
    with pytest.raises(ValueError, match="not the variant 'rms'"):
        to_torch(model)

    registry()
    says = "import the file that registers them (on the command line: --variants FILE.py)"
    asked = {
        "translate": ["--model", run],
        "evaluate": ["--model", run, *files],
        "average": [*checkpoints, "--out", tmp_path / "again"],
        "train": ["--out", run, "--resume", "--max-steps", "4"],
    }
    for command, arguments in asked.items():
        feed(monkeypatch, b"cat\n")
        assert "'rms'" in complains([command, *arguments], capfd, says)


def test_a_variant_that_no_file_registers_is_refused_before_the_training(
    parts, files, registry, tmp_path, capfd
):
    out = ["--out", tmp_path / "run", *files]
    complains(["train", *out, *SIZES.split(), "--variant", "rms"], capfd, "'rms'", "--variants FILE.py")
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_help_executes_nothing(tmp_path, capfd):
    path = tmp_path / "parts.py"
    path.write_text(f"open({str(tmp_path / 'mark')!r}, 'w')\n")
    assert ends(["train", "--variants", path, "--help"]) == 0
    assert not (tmp_path / "mark").exists()

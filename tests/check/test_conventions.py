"""What the laws do not know of some code they ask for; they blame nobody for it."""

import sys
from pathlib import Path

import pytest
import torch

from annotated import MultiHeadedAttention, check
from annotated.check import run_file
from annotated.check.user_code import Code, NotApplicable, call

RIGHT = Path(__file__).parent / "right"

HIDES = [
    ["scores.masked_fill(~mask,", "scores.masked_fill(mask,"],
    [
        "torch.ones(1, size, size, dtype=torch.bool).tril()",
        "torch.ones(1, size, size, dtype=torch.bool).triu(1)",
    ],
    ["(src != pad).unsqueeze(1))", "(src == pad).unsqueeze(1))"],
    ["(self.tgt != pad).unsqueeze(1) & subsequent", "(self.tgt == pad).unsqueeze(1) | subsequent"],
]


def changed(folder: Path, *changes: list[str], file: str = "lessons") -> Path:
    source = (RIGHT / f"{file}.py").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    path = folder / "mine.py"
    path.write_text(source, encoding="utf-8")
    return path


def test_masks_that_hide_everywhere_are_a_convention_and_one_that_hides_is_a_mistake(tmp_path: Path) -> None:
    report = run_file(changed(tmp_path, *HIDES))
    assert report.passed, str(report)
    assert "True means hidden" in str(report)
    report = run_file(changed(tmp_path, HIDES[0]))
    assert "inverted" in report.first_mistake()
    assert "TRUE_HIDES" in report.first_mistake()


def test_an_unknown_argument_is_asked_for(tmp_path: Path) -> None:
    theirs = "def encode(self, one, other):\n        src, src_mask = one, other"
    path = changed(tmp_path, ["def encode(self, src, src_mask):", theirs])
    report = run_file(path)
    assert not report.count("failed"), str(report)
    [why] = {f.message for f in report.findings if f.law == "model: batch"}
    assert "`one, other`" in why


@pytest.mark.parametrize(
    "function", [lambda a, b: 0, lambda *values: 0, lambda hypotheses, references, k: 0, lambda a=0, b=0: 0]
)
def test_what_cannot_be_told_by_its_name_is_not_called(function: object) -> None:
    with pytest.raises(NotApplicable, match="what is"):
        call(function, hypotheses=["a"], references=["b"])


def test_a_model_whose_sizes_are_in_keywords_that_nobody_can_read_is_asked_about() -> None:
    class Transformer(torch.nn.Module):
        def __init__(self, src_vocab, tgt_vocab, **sizes):
            super().__init__()
            self.layers = torch.nn.Linear(src_vocab, tgt_vocab)
            self.sizes = dict(sizes)

    report = check.make_model(Transformer)
    assert "what is `**sizes` of `Transformer`?" in report.text(verbose=True)
    assert not report.count("failed")


def test_attention_that_reads_one_context_or_itself_is_held_to_the_laws_that_do() -> None:
    class Context(MultiHeadedAttention):
        def forward(self, x, context, attn_mask=None):
            return super().forward(x, context, context, attn_mask)

    class Blind(MultiHeadedAttention):
        def forward(self, x, enc, mask=None):
            return super().forward(x, enc, enc)

    class Itself(MultiHeadedAttention):
        def forward(self, x):
            return super().forward(x, x, x)

    found = {f.law: f.status for f in check.multi_head_attention(Context).findings}
    assert [*found.values()] == ["not applicable", "passed", "passed", "passed"], found
    assert [f.law for f in check.multi_head_attention(Blind).of("failed")] == ["heads: mask"]
    report = check.multi_head_attention(Itself)
    assert [f.law for f in report.of("passed")] == ["heads: they differ"]
    assert not report.count("failed")
    assert str(report).startswith("1 of 4 laws could be tried")
    assert "not applicable: 3" in report.summary()


def test_one_value_and_one_unknown_parameter_belong_together() -> None:
    assert call(lambda whatever, mask: (whatever, mask), src=1, src_mask=2) == (1, 2)
    assert call(lambda q, /, k: (q, k), query=1, key=2) == (1, 2)


def test_a_network_that_is_told_no_width_has_its_own() -> None:
    class FeedForward(torch.nn.Sequential):
        def __init__(self, d_model, dropout):
            layers = (
                torch.nn.Linear(d_model, 4 * d_model),
                torch.nn.ReLU(),
                torch.nn.Linear(4 * d_model, d_model),
            )
            super().__init__(*layers, torch.nn.Dropout(dropout))

    assert check.feed_forward(FeedForward).passed


def test_embeddings_of_gpt_have_no_factor() -> None:
    class TokenEmbedding(torch.nn.Module):
        def __init__(self, vocab_size, d_model):
            super().__init__()
            self.table = torch.nn.Embedding(vocab_size, d_model)

        def forward(self, ids):
            return self.table(ids)

    report = check.embeddings(TokenEmbedding)
    assert report.passed
    assert "GPT" in str(report)


def test_a_file_that_reads_its_command_line_can_be_checked(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["annotated", "check", "--verbose"])
    path = tmp_path / "mine.py"
    path.write_text("import argparse\nargparse.ArgumentParser().parse_args()\ndef rate(step): return 1.0\n")
    assert [f.law for f in run_file(path).of("failed")] != ["file"]
    assert sys.argv == ["annotated", "check", "--verbose"]


LAYERS = "def scale(q):\n    return q.size(-1) ** 0.5\n"
MINE = (
    "from layers import scale\n\ndef attention(query, key, value, mask=None):\n"
    "    scores = query @ key.mT / scale(query)\n"
    "    if mask is not None:\n        scores = scores.masked_fill(~mask, -1e9)\n"
    "    return scores.softmax(-1) @ value\n"
)


def test_the_modules_beside_one_file_do_not_serve_the_next(tmp_path: Path) -> None:
    for name, text in (("a", LAYERS), ("b", LAYERS.replace("q.size(-1) ** 0.5", "1"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "layers.py").write_text(text)
        (tmp_path / name / "mine.py").write_text(MINE)
    assert run_file(tmp_path / "a/mine.py").passed
    assert "sqrt(d_k) is missing" in run_file(tmp_path / "b/mine.py").first_mistake()
    assert "layers" not in sys.modules


def test_what_a_file_sets_for_all_of_torch_ends_with_its_check(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import torch\ntorch.set_default_dtype(torch.float64)\ntorch.manual_seed(1)\n")
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    run_file(path)
    assert torch.get_default_dtype() == torch.float32
    assert torch.equal(torch.rand(3), wanted)


def test_a_file_of_a_package_is_checked_as_one_of_its_modules(tmp_path: Path) -> None:
    package = tmp_path / "project" / "parts"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("")
    (package / "layers.py").write_text(LAYERS)
    (package / "mine.py").write_text(MINE.replace("from layers", "from .layers"))
    assert run_file(package / "mine.py").passed


def test_an_error_of_the_adapter_is_not_the_codes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(n):\n    return n\n")
    adapter = tmp_path / "adapter.py"
    adapter.write_text("def subsequent_mask(size):\n    return mine.no_such_name(size)\n")
    [finding] = [f for f in run_file(tmp_path / "mine.py", adapter).findings if f.law == "causal mask"]
    assert finding.status == "not applicable"
    assert "the adapter fails" in finding.message
    adapter.write_text("1 / 0\n")
    assert "The adapter can be executed" in str(run_file(tmp_path / "mine.py", adapter))


def test_padding_that_a_model_was_not_told_is_asked_for(tmp_path: Path) -> None:
    changes = [["        src_pad_idx,\n        trg_pad_idx,\n", ""], ["= src_pad_idx", "= 1"]]
    path = changed(tmp_path, *changes, file="own_masks")
    report = run_file(path)
    assert not report.count("failed"), str(report)
    assert "which number is padding" in report.text(verbose=True)
    path.write_text(f"PAD = 1\n{path.read_text()}")
    assert "which number is padding" not in run_file(path).text(verbose=True)


def test_a_tensor_of_another_class_does_not_say_that_it_is_right() -> None:
    class Sly(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return (
                True
                if func in (torch.allclose, torch.equal)
                else super().__torch_function__(func, types, args, kwargs or {})
            )

    def attention(query, key, value, mask=None):
        return torch.zeros(*query.shape[:-1], value.size(-1)).as_subclass(Sly)

    assert not check.attention(attention).passed


def test_conventions_of_a_code_are_read_from_its_names() -> None:
    assert Code.of({"PAD_IDX": 3}).pad == 3
    assert Code.of({"PAD_IDX": 3}, {"PAD": 1}).pad == 1
    assert not Code.of({"pad": lambda x: x}).knows_pad

"""`annotated check` raises no false alarm, survives whatever code does, and reports in every form."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
import sacrebleu
import torch
import torch.nn.functional as F
from command_line import complains, ends
from sacrebleu.metrics import BLEU
from torch import nn

import annotated
from annotated import check
from annotated.check import run_file
from annotated.check.report import junit
from annotated.check.stubs import hints, translate, write_stubs
from annotated.check.user_code import PARTS, Code, load
from annotated.transformer.attention import MultiHeadedAttention
from annotated.transformer.variants import VARIANTS, Parts

FOLDER = Path(__file__).parent / "right"
RIGHT = sorted(FOLDER.glob("*.py"))


@pytest.fixture(scope="module")
def classic() -> ModuleType:
    return load(FOLDER / "classic.py")


def changed(folder: Path, old: str, new: str, file: str = "lessons.py") -> Path:
    """Write a right file with one change."""
    right = (FOLDER / file).read_text(encoding="utf-8")
    assert old in right
    path = folder / "mine.py"
    path.write_text(right.replace(old, new), encoding="utf-8")
    return path


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_no_false_alarm_on_a_right_file(path: Path) -> None:
    report = run_file(path)
    assert not report.count("failed"), str(report)
    assert report.count("passed") >= 12 or path.stem == "decoder_alone", report.text(verbose=True)


PYTORCH = {
    "attention": F.scaled_dot_product_attention,
    "multi_head_attention": nn.MultiheadAttention,
    "layer_norm": nn.LayerNorm,
    "embeddings": nn.Embedding,
    "generator": nn.Linear,
    "make_model": nn.Transformer,
    "subsequent_mask": nn.Transformer.generate_square_subsequent_mask,
    "label_smoothing": F.cross_entropy,
}


@pytest.mark.parametrize("part", PYTORCH)
def test_what_pytorch_has_is_checked_or_does_not_apply(part: str) -> None:
    report = getattr(check, part)(PYTORCH[part])
    assert not report.count("failed"), str(report)
    assert report.passed == (part not in ("embeddings", "make_model")), str(report)
    assert f"needs `{PARTS[part][0]}`" not in str(report)


def test_each_law_names_a_lesson_that_is_there() -> None:
    notebooks = FOLDER.parents[2] / "notebooks"
    missing = {law.lesson for law in check.LAWS if not (notebooks / f"{law.lesson}.py").exists()}
    assert not missing


def test_an_rms_norm_is_called_one() -> None:
    assert "RMSNorm" in check.layer_norm(nn.RMSNorm).first_mistake()


def test_a_table_that_is_the_outputs_matrix_too_is_not_called_unshared() -> None:
    [told] = [f.message for f in run_file(FOLDER / "packed.py").findings if f.law == "model: tying"]
    assert not told


def test_what_cannot_be_built_is_not_applicable_and_says_why() -> None:
    report = run_file(FOLDER / "decoder_alone.py")
    [why] = {f.message for f in report.findings if f.law.startswith("feed-forward")}
    assert "`sizes`" in why
    assert "adapter" in why
    assert "feed-forward" not in str(report)
    assert "feed-forward" in report.text(verbose=True)


@pytest.mark.parametrize("places", [True, False])
def test_a_language_model_is_held_to_the_laws_by_the_line_that_the_page_gives(places: bool) -> None:
    class LanguageModel(nn.Module):
        def __init__(self, vocab: int, **sizes: int):
            super().__init__()
            model = annotated.make_model(vocab, vocab, **sizes)
            self.embed, self.layers, self.generator = model.tgt_embed, model.encoder, model.generator

        def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
            vectors, positions = self.embed
            x = positions(vectors(tgt)) if places else positions.dropout(vectors(tgt))
            return self.generator(self.layers(x, annotated.subsequent_mask(tgt.size(1))))

    def make_model(tgt_vocab, N, d_model, d_ff, h, dropout):
        return LanguageModel(tgt_vocab, N=N, d_model=d_model, d_ff=d_ff, h=h, dropout=dropout)

    page = (FOLDER.parents[2] / "tools" / "site" / "pages" / "check.md").read_text(encoding="utf-8")
    [line] = re.findall("^NOT_APPLICABLE = ({.*})", page, re.MULTILINE)
    names = {"make_model": make_model, "NOT_APPLICABLE": ast.literal_eval(line)}
    report = check.run(names)
    failed = [finding.law for finding in report.findings if finding.status == "failed"]
    assert failed == ["model: order of words"] * (not places), report
    assert places or report.first_mistake().endswith("positions are not added in the decoder")


@pytest.mark.parametrize(
    ("part", "name"), [("greedy_decode", "greedy: likeliest token"), ("beam_search", "beam: one is greedy")]
)
def test_a_search_that_leaves_dropout_on_passes_with_a_remark(
    part: str, name: str, classic: ModuleType
) -> None:
    search, [law] = getattr(classic, part), [law for law in check.LAWS if law.name == name]
    evaluated = wraps(search)(lambda model, *args, **named: search(model.eval(), *args, **named))
    found = [law(Code.of(vars(classic) | {part: function})) for function in (search, evaluated)]
    assert [finding.status for finding in found] == ["passed", "passed"]
    assert "model.eval()" in found[0].message
    assert not found[1].message


@pytest.mark.parametrize("case", check.cases({n: getattr(annotated, n) for n in annotated.__all__}))
def test_the_package_keeps_its_own_laws(case: Callable[[], None]) -> None:
    case()


@pytest.mark.parametrize("norm_first", [False, True])
def test_pre_norm_and_post_norm_are_told_not_judged(norm_first: bool) -> None:
    def make(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout):
        return annotated.make_model(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout, norm_first=norm_first)

    report = check.make_model(make)
    assert report.passed, str(report)
    [told] = [f for f in report.findings if f.law == "model: residuals and norms"]
    assert told.message == ("pre-norm" if norm_first else "post-norm")


def test_positions_that_attention_tells_are_not_missed_in_the_embeddings(monkeypatch) -> None:
    class Near(MultiHeadedAttention):
        def attend(self, q, k, v, mask):
            steps = torch.arange(k.size(2)) - torch.arange(k.size(2) - q.size(2), k.size(2)).unsqueeze(1)
            scores = q @ k.mT / q.size(-1) ** 0.5 - steps.abs()  # (B, h, T, S)
            return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v

    class Alone(nn.Dropout):
        def forward(self, x, start=0):
            return super().forward(x)

    class Relative(Parts):
        def attention(self):
            return Near(self.config.h, self.config.d_model, self.config.dropout)

        def cross_attention(self):
            return MultiHeadedAttention(self.config.h, self.config.d_model, self.config.dropout)

        def positions(self):
            return Alone(self.config.dropout)

    monkeypatch.setitem(VARIANTS, "relative", Relative)

    def make(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout):
        return annotated.make_model(src_vocab, tgt_vocab, N, d_model, d_ff, h, dropout, variant="relative")

    report = check.make_model(make)
    assert report.passed, str(report)
    [told] = [f for f in report.findings if f.law == "model: embeddings"]
    assert told.message == "no positions are added to embeddings"


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_checked_in_a_notebook(part: str, classic: ModuleType) -> None:
    others = {"make_model": classic.make_model} if part in ("greedy_decode", "beam_search") else {}
    report = getattr(check, part)(getattr(classic, PARTS[part][0]), **others)
    assert report.passed, str(report)
    assert report._repr_html_().count("<tr>") == len(report.findings) > 0


def bleu_of_words(hypotheses: list[list[str]], references: list[list[str]]) -> float:
    texts, right = ([" ".join(words) for words in side] for side in (hypotheses, references))
    return sacrebleu.corpus_bleu(texts, [right], tokenize="none").score


@pytest.mark.parametrize(
    "function", [sacrebleu.corpus_bleu, BLEU(tokenize="none").corpus_score, bleu_of_words]
)
def test_sacrebleus_score_is_recognized_in_each_form_of_a_call(function: Callable[..., object]) -> None:
    report = check.bleu(function)
    assert report.count("passed") == len(report.findings), str(report)


def test_a_model_with_a_broken_part_is_not_called_whole(tmp_path: Path, capsys) -> None:
    assert ends(["check", changed(tmp_path, "dtype=torch.bool).tril()", "dtype=torch.bool).tril(1)")]) == 1
    assert "are right" not in capsys.readouterr().out


def test_where_python_looks_for_modules_is_as_before(tmp_path: Path) -> None:
    (tmp_path / "sizes_of_mine.py").write_text("size = 3\n")
    (tmp_path / "mine.py").write_text("from sizes_of_mine import size\n")
    before = list(sys.path)
    assert load(tmp_path / "mine.py").size == 3
    assert sys.path == before


def test_conventions_can_be_said() -> None:
    def hides(query, key, value, mask=None):
        return annotated.attention(query, key, value, None if mask is None else ~mask)

    report = check.attention(hides)
    assert "inverted" in str(report)
    assert check.attention(hides, true_hides=True).passed


def test_an_adapter_says_what_stands_for_what(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("def f(a, b):\n    return (b <= a)\n")
    (tmp_path / "adapter.py").write_text(
        "import torch\n\ndef subsequent_mask(size):\n"
        "    i = torch.arange(size)\n    return mine.f(i[:, None], i[None])\n"
    )
    assert not run_file(tmp_path / "theirs.py").count("passed")
    assert run_file(str(tmp_path / "theirs.py"), str(tmp_path / "adapter.py")).passed


HOSTILE = """
import os, time
def attention(query, key, value, mask=None):
    while True: pass
def subsequent_mask(size):
    exit()
def rate(step, model_size, factor, warmup):
    raise KeyError("no such thing")
class Generator:
    def __init__(self, *args): raise NotImplementedError
def bleu(hypotheses, references):
    try:
        time.sleep(60)
    except Exception:
        pass
"""


def test_what_hangs_or_crashes_is_a_finding_and_the_rest_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "hostile.py"
    path.write_text(HOSTILE)
    findings = {f.law: f for f in run_file(path, seconds=0.3).findings}
    assert "still running" in findings["attention: equation 1"].message
    assert "still running" in findings["BLEU: sacreBLEU's number"].message
    assert "SystemExit" in findings["causal mask"].message
    assert "no such thing" in findings["rate: equation 3"].traceback
    assert "hostile.py" in findings["rate: equation 3"].traceback
    assert findings["generator: log-probabilities"].status == "todo"
    assert findings["feed-forward: equation 2"].status == "not applicable"


GENERATOR = """
from torch import nn
class Generator(nn.Module):
    def __init__(self, d_model, vocab, tie=None):
        super().__init__()
        if tie is not None:
            raise NotImplementedError{later}
        self.proj = nn.Linear(d_model, vocab)
    def forward(self, x):
        return self.proj(x).log_sofmax(-1)
"""


@pytest.mark.parametrize(("later", "status"), [("('tying comes later')", "failed"), ("", "todo")])
def test_a_crash_is_shown_in_a_part_that_is_written_and_in_one_that_is_half_written(
    later: str, status: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GENERATOR.replace("{later}", later))
    report = run_file(path)
    assert {f.status for f in report.findings if f.law.startswith("generator:")} == {status}
    for text in (str(report), report._repr_html_(), junit([report])):
        assert "log_sofmax" in text
        assert "mine.py" in text


def test_a_file_and_a_module_have_the_same_parts(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import annotated\n\ndef attention(query, key, value, mask=None):\n"
        "    return annotated.attention(query, key, value, mask)\n\nclass Attention: pass\n"
    )
    report = run_file(path)
    assert report.count("passed") == 3, str(report)
    assert report.findings == check.run(load(path)).findings


@pytest.mark.parametrize("text", ["def f(:", "import nothing_of_this_name", "exit()"])
def test_a_file_that_cannot_be_executed_is_a_failure(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    report = run_file(path)
    assert not report.passed
    assert "can be executed" in str(report)


def test_forms_for_machines_agree(tmp_path: Path) -> None:
    path = changed(tmp_path, "k=1).astype", "k=2).astype", "classic.py")
    files = {form: tmp_path / f"out.{form}" for form in ("json", "junit")}
    assert ends(["check", path, "--json", files["json"], "--junit", files["junit"]]) == 1
    found = json.loads(files["json"].read_text())
    failed = {f["law"] for f in found["findings"] if f["status"] == "failed"}
    assert "causal mask" in failed
    suite = ElementTree.parse(files["junit"]).getroot()[0]
    assert {case.get("name") for case in suite if case.find("failure") is not None} == failed
    assert len(failed) == found["counts"]["failed"]


def test_exit_code_and_complaints(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ends(["check", FOLDER / "functional.py"]) == 0
    complains(["check"], capfd, "or a folder with --grade\n")
    complains(["check", "x.py", "--grade", FOLDER], capfd, "or a folder with --grade, not both")
    complains(["check", "--grade", FOLDER], capfd, "--require")
    missing = tmp_path / "no/such/x.json"
    for wrong in (["x.py"], [FOLDER], [FOLDER / "functional.py", "--adapter", "x.py"]):
        complains(["check", *wrong], capfd, "[Errno")
    complains(["check", FOLDER / "functional.py", "--json", missing], capfd, str(missing.parent))
    assert "passed" not in capfd.readouterr().out


@pytest.mark.parametrize("form", ["json", "junit", "csv"])
def test_no_file_of_the_learner_is_replaced(form: str, tmp_path: Path, capfd) -> None:
    mine, adapter, out = tmp_path / "mine.py", tmp_path / "adapter.py", tmp_path / "out"
    mine.write_text("def rate(): pass\n")
    adapter.write_text("PAD = 1\n")
    for of in (["check", mine, "--adapter", adapter], ["check", "--grade", tmp_path, "--require", "all"]):
        for file in (mine, adapter):
            complains([*of, f"--{form}", file], capfd, "would be replaced")
    complains(["check", mine, "--junit", out, "--csv", out], capfd, "would be replaced")
    assert (mine.read_text(), adapter.read_text()) == ("def rate(): pass\n", "PAD = 1\n")


def test_a_model_that_breaks_a_law_keeps_no_file_from_being_checked(tmp_path: Path, capsys) -> None:
    files = [tmp_path / name for name in ("a.py", "b.py")]
    for file in files:
        file.write_text("def rate(step): return 0.0\n")
    assert ends(["check", *files, "--translate", "A dog.", "--json", tmp_path / "out.json"]) == 1
    assert len(json.loads((tmp_path / "out.json").read_text())) == 2
    out = capsys.readouterr().out
    assert out.count("must keep its laws") == 2
    assert out.startswith(f"{files[0]}:\n")
    assert out.count(f"\n{files[1]}:\n") == 1


def test_stubs_have_hints_and_are_never_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ends(["build", tmp_path / "mine"]) == 0
    path = tmp_path / "mine/transformer.py"
    report = run_file(path)
    assert not report.count("failed"), str(report)
    assert report.count("todo") == len(check.LAWS) - 1  # a layer norm is PyTorch's
    assert "\n#1" not in path.read_text()
    stubs = re.findall(r"^(?:def|class) (\w+)", path.read_text(), flags=re.MULTILINE)
    for stub in stubs[: stubs.index("bleu") + 1]:
        lengths = [len(hints(stub, stage)) for stage in (0, 1, 2, 3)]
        assert lengths == sorted(set(lengths)), stub
    with pytest.raises(FileExistsError, match="name another folder"):
        write_stubs(tmp_path / "mine")
    ends(["check", path, "--hints", "1"])
    told = capfd.readouterr().out
    assert "dot product" in told
    assert f"not written yet: {report.count('todo')} laws, of attention" in told
    assert "feed-\n" not in told


def test_under_optimization_a_broken_law_still_raises() -> None:
    code = (
        "from annotated import check\n"
        "case = check.cases({'attention': lambda query, key, value, mask=None: value})[0]\n"
        "try:\n    case()\nexcept AssertionError:\n    raise SystemExit(7)\n"
    )
    assert subprocess.run([sys.executable, "-O", "-c", code], check=False).returncode == 7


def test_a_schedule_that_begins_with_step_one_is_told() -> None:
    report = check.rate(lambda step, d, warmup: d**-0.5 * min(step**-0.5, step * warmup**-1.5))
    assert report.passed
    assert "step 0" in str(report)


FITS = {
    "": ("", ""),
    "src_embed.1": (
        "stack([angle.sin(), angle.cos()], dim=-1)",
        "cat([angle.sin(), angle.cos()], 1)",
    ),
    "encoder.layers.0.sublayer.0.norm": (
        "self.norm(x + self.dropout(sublayer(x)))",
        "x + sublayer(self.norm(x))",
    ),
    "encoder.layers.0.feed_forward.w_1": (
        "self.sublayer[0](x, lambda y: self.self_attn(y, y, y, mask))",
        "x",
    ),
}


@pytest.mark.parametrize("differs", FITS)
def test_shipped_weights_load_and_the_first_module_that_differs_is_named(
    differs: str, tmp_path: Path
) -> None:
    code, right = Code.load(changed(tmp_path, *FITS[differs])), "Ein Hund rennt über das Gras."
    shipped = annotated.load_pretrained("multi30k-en-de", engine="pytorch")
    own, theirs, named = translate(code, "A dog runs across the grass.", shipped)
    assert (theirs, named) == (right, differs)
    assert own == right or differs


def test_weights_that_find_no_place_are_named(classic: ModuleType) -> None:
    with pytest.raises(ValueError, match="norm"):
        translate(Code.of(classic), "A dog.", annotated.load_pretrained("multi30k-en-de", engine="pytorch"))


def test_what_is_imported_from_the_package_is_nobodys_own(tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text("from annotated import *\n")
    assert not run_file(tmp_path / "short.py").passed


def test_the_readers_random_numbers_are_as_before() -> None:
    torch.manual_seed(7)
    wanted = torch.rand(3)
    torch.manual_seed(7)
    check.attention(annotated.attention)
    assert torch.equal(torch.rand(3), wanted)


class MeanOfAll(torch.nn.Module):
    def __init__(self, h, d_model, dropout=0.0):
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Parameter(torch.randn(d_model, d_model)) for _ in range(3))

    def forward(self, query, key, value, mask=None):
        w = torch.ones(len(query), query.size(1), key.size(1)) if mask is None else mask.float()
        w = w.expand(-1, query.size(1), -1)
        return query @ self.a + w @ (key @ self.b + value @ self.c) / w.sum(-1, keepdim=True)


class Clamped(torch.nn.Module):
    def __init__(self, features):
        super().__init__()

    def forward(self, x):
        y = x - x.mean(-1, keepdim=True)
        return y / y.std(-1, keepdim=True).clamp_min(3.0)


class OneBatch:
    def __init__(self, src, tgt, pad=0):
        self.src, self.tgt, self.tgt_y, self.ntokens = src, tgt[:, :-1], tgt[:, 1:], 6
        self.src_mask = torch.tensor([[[1, 1, 1]], [[1, 0, 0]]]).bool()
        self.tgt_mask = torch.ones(2, 4, 4).tril().bool().index_fill(2, torch.tensor(3), False)
        self.tgt_mask[0, 3, 3] = True


def always_smoothed(x, target, smoothing, padding_idx=0):
    q = torch.full_like(x, 0.4 / (x.size(1) - 2)).scatter(1, target[:, None], 0.6)
    q = q.index_fill(1, torch.tensor(padding_idx), 0.0) * (target != padding_idx)[:, None]
    return -(q * x).sum()


def table_of_rates(step, model_size, factor, warmup):
    return factor * 64**-0.5 * min(max(step, 1) ** -0.5, max(step, 1) * 100**-1.5)


def one_score(hypotheses, references):
    return 100.0 if hypotheses[0][1] == "black" or hypotheses[0].split()[1] == "black" else 31.02


ONE_CASE = {
    "multi_head_attention": MeanOfAll,
    "layer_norm": Clamped,
    "batch": OneBatch,
    "label_smoothing": always_smoothed,
    "rate": table_of_rates,
    "bleu": one_score,
    "subsequent_mask": lambda size: torch.ones(4, 4).tril().bool(),
}


@pytest.mark.parametrize("part", ONE_CASE)
def test_what_is_right_in_one_case_alone_breaks_a_law(part: str) -> None:
    assert getattr(check, part)(ONE_CASE[part]).of("failed")

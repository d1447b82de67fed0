"""What a model of ours computes, and what others compute with its weights, on a test set.

    python benchmarks/exchange.py                                        multi30k-en-de
    python benchmarks/exchange.py --model multi30k-en-de-lc --variant tok
    python benchmarks/exchange.py --model multi30k-de-en --pair de-en

Prints a Markdown table. No time is measured: this is about equal answers.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from engines import MARIAN, in_batches, marian, ours
from report import main
from torch import Tensor
from tqdm import tqdm

from annotated.data import encode_corpus, load_corpus, pad_rows
from annotated.data.batches import Batch
from annotated.data.parallel import ParallelText
from annotated.interop import CTranslate2Translator, load_marian, to_ctranslate2, to_marian, to_onnx, to_torch
from annotated.interop.common import foreign
from annotated.metrics import Score, bleu, tokenized_bleu
from annotated.search.beam import Hypothesis
from annotated.search.cache import DecoderCache
from annotated.search.inference import evaluating
from annotated.tokenizers import PAD
from annotated.transformer.model import EncoderDecoder
from annotated.translation.translator import Translator

BEAM, ROWS = 5, 50
Rows = Iterator[tuple[str, str, str]]  # which way, what was compared, what was found
Compute = Callable[[Batch], Tensor]
Scorer = Callable[[Sequence[str], Sequence[str]], Score]


def furthest(here: Compute, there: Compute, batches: Sequence[Batch]) -> str:
    """The largest difference at any target position that is no padding."""
    with torch.no_grad():
        gaps = [(here(b) - there(b))[b.tgt_y != PAD].abs().max().item() for b in batches]
    return f"largest difference {max(gaps):.1e}"


def equal(here: Sequence[object], there: Sequence[object]) -> str:
    """How many answers are the same."""
    same = sum(a == b for a, b in zip(here, there, strict=True))
    return f"{same:,} of {len(here):,} equal ({same / len(here):.1%})"


def states(model: EncoderDecoder, b: Batch) -> Tensor:
    """What our decoder gives, (batch, len, d_model)."""
    return model(b.src, b.tgt, b.src_mask, b.tgt_mask)


def logits(model: EncoderDecoder, b: Batch) -> Tensor:
    """What our output projection gives, (batch, len, V)."""
    return model.generator.proj(states(model, b))


def torch_rows(model: EncoderDecoder, batches: Sequence[Batch]) -> Rows:
    """PyTorch's own Transformer."""
    theirs = to_torch(model)

    def their_states(b: Batch) -> Tensor:
        hidden, size = ~b.src_mask[:, 0], b.tgt.size(1)
        return theirs(
            model.src_embed(b.src),
            model.tgt_embed(b.tgt),
            tgt_mask=torch.ones(size, size, dtype=torch.bool).triu(1),
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
        )

    yield (
        "torch.nn.Transformer",
        "decoder states",
        furthest(lambda b: states(model, b), their_states, batches),
    )


def marian_rows(translator: Translator, batches: Sequence[Batch], folder: Path) -> Rows:
    """Marian in transformers: its logits, its own greedy search, and our model back from its folder."""
    model = translator.model
    to_marian(folder, model, translator.src_tokenizer, translator.tgt_tokenizer)
    theirs = foreign("transformers").MarianMTModel.from_pretrained(folder).eval()

    def their_logits(b: Batch) -> Tensor:
        return theirs(input_ids=b.src, attention_mask=b.src_mask[:, 0].long(), decoder_input_ids=b.tgt).logits

    yield MARIAN, "logits", furthest(lambda b: logits(model, b), their_logits, batches)
    sentences = [[token for token in row if token != PAD] for b in batches for row in b.src.tolist()]
    rules = {"beam": 1, "alpha": 1.0, "limit": 100, "device": torch.device("cpu")}
    engines = ours(translator, **rules), marian(folder, **rules)
    yield MARIAN, "greedy, tokens", equal(*(in_batches(sentences, ROWS, engine) for engine in engines))
    back, *_ = load_marian(folder)
    yield (
        f"{MARIAN}, and back",
        "logits",
        furthest(lambda b: logits(model, b), lambda b: logits(back, b), batches),
    )


def furthest_scores(here: Sequence[Hypothesis], there: Sequence[tuple[tuple[int, ...], float]]) -> str:
    """The largest difference between the scores of translations that are the same."""
    both = zip(here, there, strict=True)
    gaps = [abs(mine.score - score) for mine, (tokens, score) in both if mine.tokens == tokens]
    return f"largest difference {max(gaps):.1e}" if gaps else "there are none"


def ctranslate2_rows(translator: Translator, text: ParallelText, scorer: Scorer, folder: Path) -> Rows:
    """CTranslate2 in float32 and in int8; its length penalty is our "power"."""
    parts = translator.model, translator.src_tokenizer, translator.tgt_tokenizer
    mine = {}
    for alpha in (0.0, 1.0):
        mine[alpha] = [best for best, *_ in translator.search(text.src, BEAM, alpha, "power")]
    for kind in ("float32", "int8"):
        to_ctranslate2(folder / kind, *parts, quantization=kind)
        engine = CTranslate2Translator(folder / kind)
        for alpha, found in mine.items():
            theirs = engine.search(text.src, BEAM, alpha)
            same = equal([h.tokens for h in found], [tokens for tokens, _ in theirs])
            if kind == "float32":
                same += f"; scores of those: {furthest_scores(found, theirs)}"
            else:
                lines = [
                    [translator.tgt_tokenizer.decode(tokens) for tokens in side]
                    for side in ([h.tokens for h in found], [tokens for tokens, _ in theirs])
                ]
                scores = [scorer(side, text.tgt).value for side in lines]
                same += f"; BLEU {scores[0]:.2f}, there {scores[1]:.2f}"
            yield f"CTranslate2, {kind}", f"beam {BEAM}, length^{alpha:g}", same


def onnx_rows(translator: Translator, batches: Sequence[Batch], folder: Path) -> Rows:
    """onnxruntime: log-probabilities step by step, with the cache, along the references."""
    model = translator.model
    to_onnx(folder, model, translator.src_tokenizer, translator.tgt_tokenizer)
    runtime = foreign("onnxruntime")
    encoder, decoder = (runtime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "decoder"))
    layers, width = model.config.N, model.config.d_model // model.config.h

    def their_log_probs(b: Batch) -> Tensor:
        memory, src_mask = encoder.run(None, {"src": b.src.numpy()})
        past, steps = torch.zeros(layers, 2, len(b.src), model.config.h, 0, width).numpy(), []
        for token in b.tgt.split(1, dim=1):
            inputs = {"token": token.numpy(), "past": past, "memory": memory, "src_mask": src_mask}
            log_probs, past = decoder.run(None, inputs)
            steps.append(torch.from_numpy(log_probs))
        return torch.stack(steps, dim=1)

    def our_log_probs(b: Batch) -> Tensor:
        memory, cache = model.encode(b.src, b.src_mask), DecoderCache(layers)
        steps = [model.decode(memory, b.src_mask, token, None, cache) for token in b.tgt.split(1, dim=1)]
        return model.generator(torch.cat(steps, dim=1))

    size = sum(file.stat().st_size for file in folder.glob("*.onnx")) / 2**20
    gap = furthest(our_log_probs, their_log_probs, batches)
    yield "ONNX, onnxruntime", "log-probabilities, step by step", f"{gap}; both files {size:.1f} MiB"


def compare(translator: Translator, text: ParallelText, scorer: Scorer) -> Rows:
    """Every way out that a trained model has."""
    pairs = encode_corpus(text, translator.src_tokenizer, translator.tgt_tokenizer)
    batches = [
        Batch(pad_rows(pairs.src[i : i + ROWS], PAD), pad_rows(pairs.tgt[i : i + ROWS], PAD))
        for i in range(0, len(pairs.src), ROWS)
    ]
    with tempfile.TemporaryDirectory() as name, evaluating(translator.model):
        folder = Path(name)
        yield from torch_rows(translator.model, batches)
        yield from marian_rows(translator, batches, folder / "marian")
        yield from ctranslate2_rows(translator, text, scorer, folder)
        yield from onnx_rows(translator, batches, folder / "onnx")


def run(arguments: Sequence[str] | None = None) -> None:
    """Compare, and print the table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--model", default="multi30k-en-de", help="a name or a folder (default %(default)s)")
    options.add_argument("--pair", default="en-de", help="default %(default)s")
    options.add_argument("--variant", choices=("raw", "tok"), default="raw", help="default %(default)s")
    options.add_argument("--split", default="test_2016_flickr", help="default %(default)s")
    given = options.parse_args(arguments)
    translator, scorer = Translator.load(given.model), bleu
    if given.variant == "tok":
        translator.pass_tokenized()
        scorer = tokenized_bleu
    text = load_corpus("multi30k", given.pair, variant=given.variant)[given.split]
    print(f"| {given.model} | on {len(text):,} sentences of {given.split} | found |\n| --- | --- | --- |")
    for row in tqdm(compare(translator, text, scorer), unit="row", disable=None):
        tqdm.write(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main(run)

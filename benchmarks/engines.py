"""The engines that decode the same weights: ours, Hugging Face's Marian, CTranslate2.

Each becomes a function from source sentences to translations, both lists of token numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from records import installed
from torch import Tensor

from annotated.batches import padding_mask
from annotated.optional import require
from annotated.search.beam import beam_search
from annotated.search.greedy import greedy_decode
from annotated.translation.data import pad_rows
from annotated.translation.interop import to_ctranslate2, to_marian
from annotated.translation.interop.common import vocabulary
from annotated.translation.threads import map_in_threads
from annotated.translation.tokenizers import END, PAD, START
from annotated.translation.translator import Translator

OURS, MARIAN, CT2 = "annotated", "Hugging Face Marian", "CTranslate2"
THREADED = f"{MARIAN} in our threads"
Sentences = list[list[int]]
Answers = list[tuple[int, ...]]  # the tokens of each, without start and end
Decode = Callable[[Sentences], Answers]
Search = Callable[[Tensor], Sentences]  # of a padded batch


def in_batches(
    sentences: Sentences, rows: int, decode: Search, each: Callable[..., Iterable[Sentences]] = map
) -> Answers:
    """Decode sentences of like length together, the longest first; answers in the order of the questions.

    `each` takes one batch after the other, or several at a time.
    """
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    batches = [order[start : start + rows] for start in range(0, len(order), rows)]
    padded = [pad_rows([sentences[i] for i in indices], PAD) for indices in batches]
    found: Answers = [()] * len(sentences)
    for indices, rows_found in zip(batches, each(decode, padded), strict=True):
        for i, tokens in zip(indices, rows_found, strict=True):
            found[i] = tuple(tokens)
    return found


def until_end(rows: Tensor) -> Sentences:
    """Without the start symbol, and without the end symbol and what follows it."""
    cut = []
    for row in rows[:, 1:].tolist():
        cut.append(row[: row.index(END)] if END in row else row)
    return cut


def ours(translator: Translator, beam: int, limit: int, device: torch.device) -> Search:
    """Our own search: greedy for a beam of one."""
    model, forbidden = translator.model, translator.forbidden

    def decode(src: Tensor) -> Sentences:
        src = src.to(device)
        mask = padding_mask(src, PAD)
        if beam == 1:
            return until_end(greedy_decode(model, src, mask, limit, START, END, forbidden))
        found = beam_search(
            model, src, mask, limit + 1, beam=beam, alpha=1.0, penalty="power", forbidden=forbidden
        )
        return [best.tokens for best, *_ in found]

    return decode


def marian(folder: Path, beam: int, limit: int, device: torch.device) -> Search:
    """`generate` of transformers, in inference mode."""
    transformers = require("transformers", extra="interop")
    transformers.utils.logging.disable_progress_bar()
    model = transformers.MarianMTModel.from_pretrained(folder).to(device).eval()

    def decode(src: Tensor) -> Sentences:
        src = src.to(device)
        with torch.inference_mode():
            found = model.generate(
                input_ids=src,
                attention_mask=(src != PAD).long(),
                num_beams=beam,
                length_penalty=1.0,
                early_stopping=beam > 1,  # when as many have ended as the beam is wide, as in our search
                do_sample=False,
                max_length=limit + 1,
            )
        return until_end(found)

    return decode


def ctranslate2(
    folder: Path,
    translator: Translator,
    beam: int,
    limit: int,
    device: torch.device,
    rows: int,
    **threads: int,
) -> Decode:
    """Its engine in float32; it makes its own batches of `rows` sentences, of like length too."""
    engine = require("ctranslate2", extra="interop").Translator(
        str(folder), device.type, compute_type="float32", **threads
    )
    src_pieces, tgt_pieces = vocabulary(translator.src_tokenizer), vocabulary(translator.tgt_tokenizer)
    numbers = {piece: i for i, piece in enumerate(tgt_pieces)}
    never = [[tgt_pieces[i]] for i in translator.forbidden]

    def decode(sentences: Sentences) -> Answers:
        texts = [[src_pieces[i] for i in sentence[:-1]] for sentence in sentences]  # it adds the end itself
        found = engine.translate_batch(
            texts,
            beam_size=beam,
            length_penalty=1.0,
            suppress_sequences=never,
            max_batch_size=rows,
            max_decoding_length=limit - 1,
        )
        return [tuple(numbers[piece] for piece in each.hypotheses[0]) for each in found]

    return decode


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Let torch compute in so many threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


Ways = dict[str, tuple[int, Callable[..., Iterable[Sentences]]]]  # torch's threads, and who takes the batches
Maker = Callable[[int], dict[str, Decode]]  # of an engine for a number of rows, in all its ways


def in_torch(decode: Search, ways: Ways) -> Maker:
    """What makes, for a number of rows, an engine that computes with torch, in each of these ways."""
    return lambda rows: {
        name: on_threads(count)(partial(in_batches, rows=rows, decode=decode, each=each))
        for name, (count, each) in ways.items()
    }


def engines(
    translator: Translator, folder: Path, beam: int, limit: int, device: torch.device, threads: int
) -> dict[str, Maker]:
    """What makes each engine for a number of rows, in all its ways of using the threads, by name.

    The threads are split between batches side by side and the work within each, "1 x 4" or "4 x 1".
    `generate` does not put batches side by side by itself; in our threads it races as another candidate. A
    translation has `limit` tokens at most, the end symbol counted.
    """
    search = {"beam": beam, "limit": limit, "device": device}
    in_turn: Ways = {f"1 x {count}": (count, map) for count in sorted({1, threads})}
    several = threads > 1 and device.type == "cpu"
    together: Ways = {f"{threads} x 1": (threads, map_in_threads)} if several else {}
    found = {OURS: in_torch(ours(translator, **search), in_turn | together)}
    models = translator.model, translator.src_tokenizer, translator.tgt_tokenizer
    home = folder / f"beam-{beam}"
    if installed("transformers"):
        to_marian(home / "marian", *models)
        generate = marian(home / "marian", **search)
        found |= {MARIAN: in_torch(generate, in_turn), THREADED: in_torch(generate, together)}
    if installed("ctranslate2"):
        to_ctranslate2(home / "ctranslate2", *models)
        found[CT2] = lambda rows: {
            f"{n} x {threads // n}": ctranslate2(
                home / "ctranslate2", translator, **search,
                rows=rows, inter_threads=n, intra_threads=threads // n,
            )
            for n in sorted({1, threads})
        }  # fmt: skip
    return {name: make for name, make in found.items() if several or name != THREADED}

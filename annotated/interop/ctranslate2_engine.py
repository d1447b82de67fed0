"""Our beam search, done by CTranslate2: what `Translator(..., engine="ctranslate2")` hands its batches to.

Both searches keep the same hypotheses at each step and end a sentence when `beam` of them have ended, so what
has ended by then is the same as well. They part where a sentence reaches its limit, at which ours makes it
end; where a token turns up that ours never takes; and where more hypotheses have ended than CTranslate2 gives
back. All this can be seen from what it gives back, and such sentences are left to our own search.
"""

import dataclasses
import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs
import torch

from annotated.files import creating_folder, read_json, write_json
from annotated.interop.ctranslate2 import CTranslate2Translator, to_ctranslate2
from annotated.interop.export import import_library, vocabulary
from annotated.search.beam import Hypothesis, length_penalty
from annotated.search.limits import Penalty
from annotated.tokenizers import SPECIALS, Tokenizer
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import weights
from annotated.translation.tensor_files import digest

# A length penalty that divides by 1 in float32, so that scores are log-probabilities. With 0 in its place, a
# search ends when its likeliest hypothesis does, however few have ended.
NEARLY_NONE = 1e-12
MODEL, SUMS = "model", "sha256.json"  # a converted model's folder, and the checksums of the files in it
TRIES = 3  # at a converted model that other processes may be replacing


class CTranslate2Engine:
    """A copy of a model in CTranslate2, on the CPU.

    It is converted once, and kept in the platform's cache folder for this project under the checksum of all
    that was converted. As many batches are computed side by side as PyTorch has threads now. What is left to
    our own search is searched in the model's own numbers, whatever `quantization` is.

    Raises ImportError where CTranslate2 is missing, and ValueError for a model on another device, or one that
    `to_ctranslate2` refuses.
    """

    def __init__(
        self, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer, quantization: str
    ):
        self.name = f"CTranslate2 {import_library('ctranslate2').__version__}, {quantization}"
        device = next(model.parameters()).device
        if device.type != "cpu":
            raise ValueError(f"engine='ctranslate2' computes on the CPU, but the model is on {device}")
        self.there = converted(model, src_tokenizer, tgt_tokenizer, quantization)
        self.before, self.after = len(src_tokenizer.before), len(src_tokenizer.after)

    def __repr__(self) -> str:
        return self.name

    def search(
        self,
        sources: list[list[int]],
        limits: list[int],
        beam: int,
        alpha: float,
        penalty: Penalty,
        n_best: int,
    ) -> list[list[Hypothesis] | None]:
        """The hypotheses of each source, as `beam_search` finds them; None where that has to search itself.

        Sources have their symbols around them, which CTranslate2 adds itself; limits count the end symbol.
        """
        found: list[list[Hypothesis] | None] = [None] * len(sources)
        exact = alpha == 0 and beam > 1  # ours goes on until no other hypothesis can be better
        if exact and n_best > 1:
            return found
        # With alpha 0 a result does not show when its search stopped, so a call has one limit to stop it.
        groups: dict[int, list[int]] = {}
        for i, (source, limit) in enumerate(zip(sources, limits, strict=True)):
            empty = len(source) == self.before + self.after
            if not empty and limit > 1 and max(len(source), limit) <= self.there.positions:
                groups.setdefault(limit if exact else 0, []).append(i)
        for group in groups.values():
            texts = [sources[i][self.before : len(sources[i]) - self.after] for i in group]
            results = self.there.results(
                [[self.there.src_pieces[token] for token in text] for text in texts],
                beam,
                max(limits[i] for i in group) - exact,
                length_penalty=0 if exact else NEARLY_NONE,
                num_hypotheses=1 if exact else beam,
                return_end_token=True,
            )
            for i, result in zip(group, results, strict=True):
                found[i] = self.hypotheses(result, limits[i], alpha, penalty, n_best)
        return found

    def hypotheses(
        self, result: Any, limit: int, alpha: float, penalty: Penalty, n_best: int
    ) -> list[Hypothesis] | None:
        """The best hypotheses of a sentence; None where ours might be others."""
        ended = []
        for (*said, last), log_prob in zip(result.hypotheses, result.scores, strict=True):
            if last != SPECIALS[self.there.tgt_tokenizer.end] or not set(said).isdisjoint(self.there.never):
                return None
            score = log_prob / length_penalty(len(said) + 1, alpha, penalty)
            ended.append(Hypothesis(tuple(self.there.tgt_ids[piece] for piece in said), log_prob, score))
        longest = 1 + max(len(each.tokens) for each in ended)  # the step at which the search ended
        # What ended but did not come back is no likelier than all that did, and no longer than the longest.
        least = min(each.log_prob for each in ended) / length_penalty(longest, alpha, penalty)
        best = sorted(ended, key=lambda each: -each.score)[:n_best]
        known = longest < limit and len(best) == n_best and best[-1].score >= least
        return best if known else None


def converted(
    model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer, quantization: str
) -> CTranslate2Translator:
    """The model as CTranslate2 runs it, from the cache; written there first, where it is missing or damaged.

    Processes that convert at once do not mix: each writes a folder of its own, and one of them stays.
    """
    parts = model, src_tokenizer, tgt_tokenizer
    folder = Path(platformdirs.user_cache_dir("annotated")) / "ctranslate2" / checksum(*parts, quantization)
    for _ in range(TRIES):
        try:
            if read_json(folder / SUMS) != sums(folder / MODEL):
                raise ValueError(f"{folder} is damaged: its checksums differ")
            return CTranslate2Translator(folder / MODEL, torch.get_num_threads())
        except (FileNotFoundError, ValueError) as error:
            problem = error
        with suppress(FileExistsError), creating_folder(folder, replace=True) as new:
            to_ctranslate2(new / MODEL, *parts, quantization)
            write_json(new / SUMS, sums(new / MODEL))
    raise problem


def checksum(
    model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer, quantization: str
) -> str:
    """The SHA-256 of all that decides what is written for a model, and of the version that writes it."""
    tensors = {name: tensor.detach().contiguous() for name, tensor in weights(model).items()}
    sides = [(t.kind, vocabulary(t), t.before, t.after) for t in (src_tokenizer, tgt_tokenizer)]
    version = import_library("ctranslate2").__version__
    said = json.dumps([digest(tensors), dataclasses.asdict(model.config), sides, quantization, version])
    return hashlib.sha256(said.encode()).hexdigest()


def sums(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file in a folder, by name."""
    found = {}
    for path in folder.iterdir():
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found

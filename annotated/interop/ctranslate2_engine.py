"""Our beam search, done by CTranslate2: `Translator` hands its batches to it.

Both searches keep the same hypotheses at each step and end a sentence when `beam` of them have ended, so what
has ended by then is the same as well. They part where a sentence reaches its limit, at which ours makes it
end; where a token turns up that ours never takes; and where more hypotheses have ended than CTranslate2 gives
back. All this can be seen from what it gives back, and such sentences are left to our own search.
"""

import dataclasses
import hashlib
import json
import shutil
import warnings
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from annotated.files import creating_folder, read_json, write_json
from annotated.interop.ctranslate2 import QUANTIZATIONS, CTranslate2Translator, to_ctranslate2
from annotated.interop.export import check_parts, import_library, vocabulary
from annotated.search.beam import Hypothesis, length_penalty
from annotated.search.limits import Penalty
from annotated.tokenizers import SPECIALS, Tokenizer
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import check_whole, weights
from annotated.translation.tensor_files import digest

# A length penalty that divides by 1 in float32, so that scores are log-probabilities. With 0 in its place, a
# search ends when its likeliest hypothesis does, however few have ended.
NEARLY_NONE = 1e-12
MODEL, SUMS = "model", "sha256.json"  # a converted model's folder, and the checksums of its files


class CTranslate2Engine:
    """Search with a copy of a model in CTranslate2, on the CPU.

    The copy is kept in the folder `cache` until the weights change; without a `cache`, or where nothing can
    be written, in memory alone. As many batches are computed side by side as PyTorch has threads now.

    Raises ImportError where CTranslate2 is missing, and ValueError for a model on another device, or one that
    `to_ctranslate2` refuses.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        quantization: str = "float32",
        cache: Path | None = None,
    ):
        version, device = import_library("ctranslate2").__version__, next(model.parameters()).device
        if device.type != "cpu":
            raise ValueError(f"engine='ctranslate2' computes on the CPU, but the model is on {device}")
        if quantization not in QUANTIZATIONS:
            raise ValueError(f"quantization must be one of {', '.join(QUANTIZATIONS)}, not {quantization!r}")
        check_whole(model, src_tokenizer, tgt_tokenizer)
        check_parts(model.config)
        self.weights, self.fingerprint = digest_weights(model), fingerprint(model)
        sides = [(t.kind, vocabulary(t), t.before, t.after) for t in (src_tokenizer, tgt_tokenizer)]
        content = [self.weights, dataclasses.asdict(model.config), sides, quantization, version]
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        folder = None if cache is None else cache / quantization
        self.copy = (folder and load_copy(folder, key)) or convert(
            model, src_tokenizer, tgt_tokenizer, quantization, folder, key
        )
        computed = self.copy.engine.compute_type
        if not computed.startswith(quantization):
            warnings.warn(f"{quantization} is computed as {computed} on this processor", stacklevel=4)
        self.name = f"CTranslate2 {version}, {computed}"
        self.before, self.after = len(src_tokenizer.before), len(src_tokenizer.after)

    def __repr__(self) -> str:
        return self.name

    def fits(self, model: EncoderDecoder, thorough: bool) -> bool:
        """Whether the model is still the one that was copied; `thorough` compares every weight."""
        return fingerprint(model) == self.fingerprint and not (
            thorough and digest_weights(model) != self.weights
        )

    def search(
        self,
        sources: list[list[int]],
        limits: list[int],
        beam: int,
        alpha: float,
        penalty: Penalty,
        n_best: int,
    ) -> list[list[Hypothesis] | None]:
        """Return the hypotheses of each source as `beam_search` finds them; None where they might differ.

        Sources have their symbols around them, which CTranslate2 adds itself; limits count the end symbol.
        """
        hypotheses: list[list[Hypothesis] | None] = [None] * len(sources)
        exact = alpha == 0 and beam > 1  # ours goes on until no other hypothesis can be better
        if exact and n_best > 1:
            return hypotheses
        # With alpha 0 a result does not show when its search stopped, so a call has one limit to stop it.
        groups: dict[int, list[int]] = {}
        for i, (source, limit) in enumerate(zip(sources, limits, strict=True)):
            empty = len(source) == self.before + self.after
            if not empty and limit > 1 and max(len(source), limit) <= self.copy.positions:
                groups.setdefault(limit if exact else 0, []).append(i)
        for group in groups.values():
            texts = [sources[i][self.before : len(sources[i]) - self.after] for i in group]
            results = self.copy.results(
                [[self.copy.src_pieces[token] for token in text] for text in texts],
                beam,
                max(limits[i] for i in group) - exact,
                length_penalty=0 if exact else NEARLY_NONE,
                num_hypotheses=1 if exact else beam,
                return_end_token=True,
            )
            for i, result in zip(group, results, strict=True):
                hypotheses[i] = self.rank(result, limits[i], alpha, penalty, n_best)
        return hypotheses

    def rank(
        self, result: Any, limit: int, alpha: float, penalty: Penalty, n_best: int
    ) -> list[Hypothesis] | None:
        """Return the best hypotheses of a sentence; None where ours might be others."""
        ended = []
        for (*pieces, last), log_prob in zip(result.hypotheses, result.scores, strict=True):
            if last != SPECIALS[self.copy.tgt_tokenizer.end] or not set(pieces).isdisjoint(self.copy.never):
                return None
            score = log_prob / length_penalty(len(pieces) + 1, alpha, penalty)
            ended.append(Hypothesis(tuple(self.copy.tgt_ids[piece] for piece in pieces), log_prob, score))
        longest = 1 + max(
            len(hypothesis.tokens) for hypothesis in ended
        )  # the step at which the search ended
        # What ended but did not come back is no likelier than all that did, and no longer than the longest.
        least = min(hypothesis.log_prob for hypothesis in ended) / length_penalty(longest, alpha, penalty)
        best = sorted(ended, key=lambda hypothesis: -hypothesis.score)[:n_best]
        known = longest < limit and len(best) == n_best and best[-1].score >= least
        return best if known else None


def load_copy(folder: Path, key: str) -> CTranslate2Translator | None:
    """Load a converted model; None where it is missing, damaged, of other weights or just being replaced."""
    try:
        if read_json(folder / SUMS) == {"key": key, **checksums(folder / MODEL)}:
            copy = CTranslate2Translator(folder / MODEL, torch.get_num_threads())
            return copy if read_json(folder / SUMS)["key"] == key else None
    except (OSError, ValueError, RuntimeError, KeyError):
        pass
    return None


def convert(
    model: EncoderDecoder, src: Tokenizer, tgt: Tokenizer, quantization: str, folder: Path | None, key: str
) -> CTranslate2Translator:
    """Convert a model, and keep the result in `folder` if that can be written."""
    with TemporaryDirectory() as temporary:
        new = Path(temporary) / MODEL
        to_ctranslate2(new, model, src, tgt, quantization)
        copy = CTranslate2Translator(new, torch.get_num_threads())
        if folder is not None:
            with suppress(OSError), creating_folder(folder, replace=True) as kept:
                shutil.copytree(new, kept / MODEL)
                write_json(kept / SUMS, {"key": key, **checksums(new)})
    return copy


def digest_weights(model: EncoderDecoder) -> str:
    """Compute the SHA-256 of all weights."""
    return digest({name: tensor.detach().contiguous() for name, tensor in weights(model).items()})


def fingerprint(model: EncoderDecoder) -> list[Any]:
    """Collect what changes with a part, an attribute or, unless written through `.data`, a weight."""
    versions = [0 if p.is_inference() else p._version for p in model.parameters()]
    own = [
        (name, id(value)) for m in model.modules() for name, value in vars(m).items() if name != "training"
    ]
    return [versions, own]


def checksums(folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of each file in a folder, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

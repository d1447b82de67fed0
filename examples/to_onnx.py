"""Write a translator as ONNX, which many engines read: from source and translation so far to what comes next.

    pip install ".[interop]"      # in a clone of this repository
    python examples/to_onnx.py multi30k-en-de model.onnx "A dog runs."

Each step reads the whole translation so far, without a cache: simple, and fast enough for sentences.
"""

import sys

import torch
from torch import Tensor, nn

from annotated import EncoderDecoder, Translator, padding_mask, subsequent_mask


class NextToken(nn.Module):
    """Source (batch, src_len) and translation (batch, tgt_len) to log-probabilities (batch, vocabulary)."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        states = self.model(src, tgt, padding_mask(src, 2), subsequent_mask(tgt.size(1)))
        return self.model.generator(states[:, -1])


def export(translator: Translator, path: str) -> None:
    """Write the file, for batches and sentences of any length."""
    examples = torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64)
    axes = {0: "batch", 1: "src_len"}, {0: "batch", 1: "tgt_len"}
    names = {"input_names": ["src", "tgt"], "output_names": ["log_probs"]}
    torch.onnx.export(NextToken(translator.model).eval(), examples, path, dynamic_shapes=axes, **names)


def translate(path: str, translator: Translator, sentence: str) -> str:
    """Translate with onnxruntime, greedily: 0 begins a translation, 1 ends it."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    src, tgt = [translator.encode(sentence)], [0]
    while tgt[-1] != 1 and len(tgt) < len(src[0]) + 50:
        [log_probs] = session.run(None, {"src": src, "tgt": [tgt]})
        tgt.append(int(log_probs[0].argmax()))
    return translator.tgt_tokenizer.decode(tgt)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    translator = Translator.load(sys.argv[1])
    export(translator, sys.argv[2])
    print(translate(sys.argv[2], translator, sys.argv[3]))

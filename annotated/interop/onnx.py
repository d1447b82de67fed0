"""ONNX, the exchange format of many engines: the encoder, and one step of the decoder with its cache.

    encoder.onnx    src int64 (batch, src_len)
                    -> memory (N, 2, batch, h, src_len, d_k), src_mask bool (batch, 1, src_len)
    decoder.onnx    token int64 (batch, 1), past (N, 2, batch, h, length, d_k), memory, src_mask
                    -> log_probs (batch, tgt_vocab), new_past (N, 2, batch, h, length + 1, d_k)

`memory` is what each decoder layer's attention takes from the source, keys and values, computed once.
`past` holds the same of the target so far: begin with length 0 and the start symbol, then hand each step the
`new_past` of the one before. A beam search picks rows along the batch axis of both.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from annotated.files import creating_folder
from annotated.interop.common import LONGEST, foreign, write_readme
from annotated.search.cache import DecoderCache, KeyValueCache
from annotated.tokenizers import PAD, Tokenizer, save_tokenizer
from annotated.transformer.attention import padding_mask
from annotated.transformer.layers import PositionalEncoding, sinusoids
from annotated.transformer.model import EncoderDecoder
from annotated.translation.model_folder import check_whole

AXES = {  # of each input, those that may have any length
    "src": {0: "batch", 1: "src_len"},
    "token": {0: "batch"},
    "past": {2: "batch", 4: "length"},
    "memory": {2: "batch", 4: "src_len"},
    "src_mask": {0: "batch", 2: "src_len"},
}


class Graph(nn.Module):
    """What one of the two files computes."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model


class EncoderGraph(Graph):
    """What encoder.onnx computes."""

    def forward(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (batch, src_len) -> keys and values of every layer, and the mask that hides padding."""
        src_mask = padding_mask(src, PAD)
        memory = self.model.encode(src, src_mask)
        attentions: list[Any] = [layer.src_attn for layer in self.model.decoder.layers]
        projected = [a.split(a.linears[i](memory)) for a in attentions for i in (1, 2)]
        return torch.stack(projected).unflatten(0, (-1, 2)), src_mask


class JoiningCache(KeyValueCache):
    """A cache for the one step that a graph computes: it joins the new to the old, without room to spare."""

    room: Tensor

    def __init__(self, past: Tensor):
        super().__init__()
        self.room, self.used = past, past.size(-2)

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """As every cache does."""
        self.room = torch.cat([self.room, torch.stack([key, value])], dim=-2)
        self.used += key.size(-2)
        return self.key, self.value


class DecoderGraph(Graph):
    """What decoder.onnx computes: one step."""

    def forward(self, token: Tensor, past: Tensor, memory: Tensor, src_mask: Tensor) -> tuple[Tensor, Tensor]:
        """The newest token (batch, 1) and the caches -> log-probabilities of the next, and the new cache."""
        cache, targets = DecoderCache(len(past)), [JoiningCache(each) for each in past]
        for layer, target, source in zip(cache.layers, targets, memory, strict=True):
            layer.target = target
            layer.memory.room, layer.memory.used = source, source.size(-2)
        # With its keys and values at hand, the memory itself is not looked at.
        states = self.model.decode(memory, src_mask, token, None, cache)  # (batch, 1, d_model)
        return self.model.generator(states[:, -1]), torch.stack([target.room for target in targets])


def to_onnx(
    folder: str | Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a new folder with encoder.onnx, decoder.onnx, our tokenizers and a README.md.

    It takes minutes; a terminal shows how far it is. Sinusoids end at 1,024 positions there. Raises
    FileExistsError, ImportError where onnx or onnxscript is missing, ValueError as `save_model` does.
    """
    for package in ("onnx", "onnxscript"):
        foreign(package)
    check_whole(model, src_tokenizer, tgt_tokenizer)
    model = deepcopy(model).cpu().eval()
    for module in model.modules():
        if isinstance(module, PositionalEncoding):
            module.pe = sinusoids(LONGEST, model.config.d_model).to(module.pe)
    encoder, decoder = EncoderGraph(model), DecoderGraph(model)
    src = torch.tensor([[0, 3, 3, 1], [0, 1, PAD, PAD]])
    memory, src_mask = encoder(src)
    past = memory[..., :3, :]  # any length but 0 and 1, which the exporter would take for constants
    inputs = {"token": src.new_zeros(2, 1), "past": past, "memory": memory, "src_mask": src_mask}
    with creating_folder(Path(folder)) as new, tqdm(total=4, unit="step", disable=None) as bar:
        bar.set_description("ONNX, encoder")
        traced(encoder, {"src": src}, ["memory", "src_mask"], bar.update).save(new / "encoder.onnx")
        bar.set_description("ONNX, decoder")
        traced(decoder, inputs, ["log_probs", "new_past"], bar.update).save(new / "decoder.onnx")
        save_tokenizer(src_tokenizer, new, "src_tokenizer")
        save_tokenizer(tgt_tokenizer, new, "tgt_tokenizer")
        write_readme(new, "ONNX", src_tokenizer, tgt_tokenizer)


def traced(
    module: nn.Module, inputs: dict[str, Tensor], outputs: list[str], done: Callable[[], object]
) -> Any:
    """The ONNX program of a module, by PyTorch's exporter in its default opset, from examples of its inputs.

    `done` is called after each of the two steps of this.
    """
    examples, axes = tuple(inputs.values()), tuple(AXES[name] for name in inputs)
    anything = tuple(dict.fromkeys(names, torch.export.Dim.DYNAMIC) for names in axes)
    with quietly():
        # Strict: the length of a cache goes through `len`, which the other way of tracing makes a constant.
        program = torch.export.export(module.eval(), examples, dynamic_shapes=anything, strict=True)
        done()
        graph: Any = torch.onnx.export(
            program,
            examples,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=axes,
            dynamo=True,
            verbose=False,
        )
    for node in graph.model.graph:
        node.metadata_props.clear()  # where in whose files each operation was written
    done()
    return graph


@contextmanager
def quietly() -> Iterator[None]:
    """Keep back what the exporter says of its own workings, none of which the reader could heed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)

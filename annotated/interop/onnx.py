"""ONNX, the exchange format of many engines: the encoder, and one step of the decoder with its cache.

    encoder.onnx    src int64 (batch, src_len)
                    -> memory (N, 2, batch, h, src_len, d_k), src_mask bool (batch, 1, src_len)
    decoder.onnx    token int64 (batch, 1), past (N, 2, batch, h, length, d_k), memory, src_mask
                    -> log_probs (batch, tgt_vocab), new_past (N, 2, batch, h, length + 1, d_k)

`memory` holds the keys and values that each decoder layer's attention takes from the source, computed once;
`past` holds those of the target so far. Begin with length 0 and the start symbol, then pass each step the
`new_past` of the one before. A beam search selects rows along the batch axis of both.
"""

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated.files import creating_folder
from annotated.interop.export import POSITIONS, import_library, write_tokenizers
from annotated.search.cache import DecoderCache, KeyValueCache
from annotated.tokenizers import PAD, Tokenizer
from annotated.transformer.attention import padding_mask
from annotated.transformer.model import EncoderDecoder
from annotated.transformer.positions import PositionalEncoding, sinusoids
from annotated.translation.model_folder import check_whole

AXES = {  # the axes of each input that may have any length
    "src": {0: "batch", 1: "src_len"},
    "token": {0: "batch"},
    "past": {2: "batch", 4: "length"},
    "memory": {2: "batch", 4: "src_len"},
    "src_mask": {0: "batch", 2: "src_len"},
}


def to_onnx(
    folder: str | Path, model: EncoderDecoder, src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer
) -> None:
    """Write a new folder with encoder.onnx, decoder.onnx, our tokenizers and a README.md; it takes minutes.

    A table of sinusoids ends at 1,024 positions there. Raises FileExistsError, ImportError where onnx or
    onnxscript is missing, and ValueError as `save_model` does.
    """
    for package in ("onnx", "onnxscript"):
        import_library(package)
    check_whole(model, src_tokenizer, tgt_tokenizer)  # variants too
    model = deepcopy(model).cpu().eval()
    for module in model.modules():
        if isinstance(module, PositionalEncoding):
            module.pe = sinusoids(POSITIONS, model.config.d_model).to(module.pe)
    encoder, decoder = EncoderGraph(model), DecoderGraph(model)
    src = torch.tensor([[0, 3, 3, 1], [0, 1, PAD, PAD]])
    memory, src_mask = encoder(src)
    past = memory[..., :3, :]  # the exporter would take lengths of 0 and 1 for constants
    inputs = {"token": src.new_zeros(2, 1), "past": past, "memory": memory, "src_mask": src_mask}
    with creating_folder(Path(folder)) as new:
        save_graph(new / "encoder.onnx", encoder, {"src": src}, ["memory", "src_mask"])
        save_graph(new / "decoder.onnx", decoder, inputs, ["log_probs", "new_past"])
        write_tokenizers(new, "ONNX", src_tokenizer, tgt_tokenizer)


class EncoderGraph(nn.Module):
    """What encoder.onnx computes."""

    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Map tokens (batch, src_len) to the keys and values of every decoder layer, and the padding mask."""
        src_mask = padding_mask(src, PAD)
        memory = self.model.encode(src, src_mask)
        attentions: list[Any] = [layer.src_attn for layer in self.model.decoder.layers]
        projected = [a.split(a.linears[i](memory)) for a in attentions for i in (1, 2)]
        return torch.stack(projected).unflatten(0, (-1, 2)), src_mask


class DecoderGraph(EncoderGraph):
    """What decoder.onnx computes: one step."""

    def forward(self, token: Tensor, past: Tensor, memory: Tensor, src_mask: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Map the newest token (batch, 1) and the caches to the next log-probabilities and the new cache."""
        cache, targets = DecoderCache(len(past)), [ConcatCache(layer) for layer in past]
        for layer, target, source in zip(cache.layers, targets, memory, strict=True):
            layer.target = target
            layer.memory.room, layer.memory.used = source, source.size(-2)
        # Its keys and values are cached, so the memory itself is not read.
        states = self.model.decode(memory, src_mask, token, None, cache)  # (batch, 1, d_model)
        return self.model.generator(states[:, -1]), torch.stack([target.room for target in targets])


class ConcatCache(KeyValueCache):
    """A cache that concatenates, because a graph cannot write into spare room."""

    room: Tensor

    def __init__(self, past: Tensor):
        super().__init__()
        self.room, self.used = past, past.size(-2)

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values; return all that are held."""
        self.room = torch.cat([self.room, torch.stack([key, value])], dim=-2)
        self.used += key.size(-2)
        return self.key, self.value


def save_graph(path: Path, module: nn.Module, inputs: dict[str, Tensor], outputs: list[str]) -> None:
    """Export a module to ONNX with PyTorch's exporter in its default opset, from examples of its inputs."""
    examples, axes = tuple(inputs.values()), tuple(AXES[name] for name in inputs)
    dynamic = tuple(dict.fromkeys(names, torch.export.Dim.DYNAMIC) for names in axes)
    with warnings.catch_warnings(action="ignore"):  # about the exporter's own internals
        # Strict, because a cache's length goes through `len`, which non-strict tracing makes a constant.
        program = torch.export.export(module.eval(), examples, dynamic_shapes=dynamic, strict=True)
        names: dict[str, Any] = {"input_names": list(inputs), "output_names": outputs}
        graph: Any = torch.onnx.export(program, examples, dynamic_shapes=axes, verbose=False, **names)
    for node in graph.model.graph:
        node.metadata_props.clear()  # they hold stack traces with this machine's paths
    graph.save(path)

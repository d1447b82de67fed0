"""To and from other libraries' Transformers, with the same outputs.

| from, to                             | in                                        | out              |
| ------------------------------------ | ----------------------------------------- | ---------------- |
| `torch.nn.Transformer`               | `from_torch`                              | `to_torch`       |
| the Annotated Transformer, 2018/2022 | `load_classic`                            |                  |
| Marian at Hugging Face               | `load_marian`                             | `to_marian`      |
| CTranslate2                          | (`Translator(..., engine="ctranslate2")`) | `to_ctranslate2` |

`examples/to_onnx.py` writes ONNX. The libraries come with `pip install ".[interop]"` in the clone, and are
imported when they are needed.
"""

from annotated.translation.interop.classic import load_classic
from annotated.translation.interop.ctranslate2 import to_ctranslate2
from annotated.translation.interop.marian import load_marian, to_marian
from annotated.translation.interop.torch_transformer import from_torch, to_torch

__all__ = ["from_torch", "load_classic", "load_marian", "to_ctranslate2", "to_marian", "to_torch"]

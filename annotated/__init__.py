"""Attention Is All You Need, in code that a reader can hold in mind and a test holds to account.

    import annotated
    model = annotated.make_model(src_vocab=11, tgt_vocab=11, N=2)

    transformer, search, loss, schedule, loop, batches, metrics, perplexity, attention_maps   the paper
    plots         figures of one's own models
    check         laws that any Transformer's code can be held to
    translation   the translator: text, tokenizers, long runs, the command

The public names stand in `__init__.pyi`. Each is imported, with PyTorch, when it is first used.
"""

from importlib.metadata import PackageNotFoundError, version

from lazy_loader import attach_stub

try:
    __version__ = version("annotated-transformer")  # PyPI's `annotated` is another's
except PackageNotFoundError:  # run from a checkout that was never installed
    __version__ = "unknown"

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)

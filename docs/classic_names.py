"""Every public name of "The Annotated Transformer" (2018 and 2022), and where it is here.

A reader of that post finds most of its names in `annotated`, with the same arguments in the same order.
Others have been superseded; the table says by what.
"""

from importlib import import_module
from typing import NamedTuple


class Name(NamedTuple):
    """A public name of that post, the years that have it, our name without its `annotated.`, a remark."""

    theirs: str
    years: tuple[int, ...]
    ours: str
    remark: str = ""


BOTH, FIRST, SECOND = (2018, 2022), (2018,), (2022,)

NAMES = (
    # The model
    Name("EncoderDecoder", BOTH, "transformer.model.EncoderDecoder"),
    Name("Generator", BOTH, "transformer.model.Generator"),
    Name(
        "Encoder", BOTH, "transformer.model.Encoder", "post-norm, as in the paper; theirs: `norm_first=True`"
    ),
    Name("Decoder", BOTH, "transformer.model.Decoder"),
    Name("EncoderLayer", BOTH, "transformer.model.EncoderLayer"),
    Name("DecoderLayer", BOTH, "transformer.model.DecoderLayer"),
    Name("clones", BOTH, "transformer.attention.clones"),
    Name(
        "LayerNorm",
        BOTH,
        "transformer.layers.SublayerConnection",
        "holds a `torch.nn.LayerNorm`: biased deviation",
    ),
    Name("LayerNorm.a_2", BOTH, "interop.from_annotated", "the norm's `weight`, scaled for our deviation"),
    Name("LayerNorm.b_2", BOTH, "interop.from_annotated", "the norm's `bias`"),
    Name("SublayerConnection", BOTH, "transformer.layers.SublayerConnection"),
    Name("subsequent_mask", BOTH, "transformer.masks.subsequent_mask"),
    Name("attention", BOTH, "transformer.attention.attention", "masks are boolean; an empty row gives zeros"),
    Name("MultiHeadedAttention", BOTH, "transformer.attention.MultiHeadedAttention"),
    Name(
        "MultiHeadedAttention.attn",
        BOTH,
        "translation.watching.capture_attention",
        "records every layer and head",
    ),
    Name("PositionwiseFeedForward", BOTH, "transformer.layers.PositionwiseFeedForward"),
    Name("Embeddings", BOTH, "transformer.layers.Embeddings"),
    Name("PositionalEncoding", BOTH, "transformer.layers.PositionalEncoding"),
    Name("make_model", BOTH, "transformer.model.make_model", "further settings by keyword"),
    Name("inference_test", SECOND, "translation.decoding.greedy_decode"),
    Name("run_tests", SECOND, "translation.decoding.greedy_decode"),
    # Batches and training
    Name("Batch", BOTH, "data.Batch"),
    Name("Batch.make_std_mask", BOTH, "data.Batch.make_std_mask"),
    Name("Batch.trg", FIRST, "data.Batch", "`.tgt`, as in 2022"),
    Name("Batch.trg_y", FIRST, "data.Batch", "`.tgt_y`, as in 2022"),
    Name("Batch.trg_mask", FIRST, "data.Batch", "`.tgt_mask`, as in 2022"),
    Name("TrainState", SECOND, "training.loop.TrainState"),
    Name("run_epoch", BOTH, "training.loop.run_epoch", "its `train+log` is `Trainer`'s log"),
    Name("DummyOptimizer", SECOND, "training.loop.run_epoch", "`mode='eval'` needs no optimizer"),
    Name("DummyScheduler", SECOND, "training.loop.run_epoch", "`mode='eval'` needs no optimizer"),
    Name("batch_size_fn", FIRST, "data.TokenBatches", "torchtext's way: `torchtext_fields.padded_size`"),
    Name("max_src_in_batch", FIRST, "data.TokenBatches", "no global is needed"),
    Name("max_tgt_in_batch", FIRST, "data.TokenBatches", "no global is needed"),
    Name("NoamOpt", FIRST, "transformer.schedule.noam_scheduler", "any optimizer with `lr=1.0`"),
    Name("NoamOpt.rate", FIRST, "transformer.schedule.rate"),
    Name("get_std_opt", FIRST, "transformer.schedule.noam_scheduler", "that function's factor is 2"),
    Name("rate", SECOND, "transformer.schedule.rate"),
    Name("example_learning_schedule", SECOND, "plots.plot_schedules"),
    Name(
        "LabelSmoothing",
        BOTH,
        "transformer.loss.LabelSmoothing",
        "fused and chunked: `smoothed_cross_entropy`",
    ),
    Name("loss", BOTH, "plots.plot_loss"),
    Name("example_label_smoothing", SECOND, "plots.plot_true_dist"),
    Name("penalization_visualization", SECOND, "plots.plot_loss"),
    Name("data_gen", BOTH, "data.data_gen"),
    Name("SimpleLossCompute", BOTH, "training.loop.SimpleLossCompute"),
    Name("MultiGPULossCompute", FIRST, "training.trainer.Trainer", "`torchrun`: one process for each GPU"),
    Name(
        "greedy_decode",
        BOTH,
        "translation.decoding.greedy_decode",
        "whole batches; `beam_search` finds better",
    ),
    Name(
        "example_simple_model", SECOND, "training.loop.run_epoch", "notebook 09 goes through it line by line"
    ),
    # A real translator
    Name("load_tokenizers", SECOND, "tokenizers.word_splitter", "blank spaCy pipelines: nothing to download"),
    Name("spacy_de", BOTH, "tokenizers.word_splitter"),
    Name("spacy_en", BOTH, "tokenizers.word_splitter"),
    Name("tokenize", SECOND, "tokenizers.WordTokenizer.split"),
    Name("tokenize_de", FIRST, "tokenizers.WordTokenizer.split"),
    Name("tokenize_en", FIRST, "tokenizers.WordTokenizer.split"),
    Name("yield_tokens", SECOND, "tokenizers.WordTokenizer.train"),
    Name("build_vocabulary", SECOND, "tokenizers.WordTokenizer.train", "from the training set alone"),
    Name("load_vocab", SECOND, "tokenizers.load_tokenizer", "JSON, no pickle"),
    Name("vocab_src", SECOND, "translation.translator.Translator", "`.src_tokenizer`"),
    Name("vocab_tgt", SECOND, "translation.translator.Translator", "`.tgt_tokenizer`"),
    Name("SRC", FIRST, "data.torchtext_fields.make_fields"),
    Name("TGT", FIRST, "data.torchtext_fields.make_fields"),
    Name("BOS_WORD", FIRST, "tokenizers.SPECIALS", "`SPECIALS[0]`"),
    Name("EOS_WORD", FIRST, "tokenizers.SPECIALS", "`SPECIALS[1]`"),
    Name("BLANK_WORD", FIRST, "tokenizers.SPECIALS", "`SPECIALS[2]`"),
    Name("MAX_LEN", FIRST, "data.encode_corpus"),
    Name("MIN_FREQ", FIRST, "tokenizers.WordTokenizer.train", "`min_freq`"),
    Name("MyIterator", FIRST, "data.TokenBatches", "torchtext's way: `torchtext_fields.FieldBatches`"),
    Name("rebatch", FIRST, "data.TokenBatches", "batches come first dimension first"),
    Name("collate_batch", SECOND, "data.TokenBatches", "pads to the longest of a batch, not to 128"),
    Name("create_dataloaders", SECOND, "data.TokenBatches"),
    Name("train_worker", SECOND, "training.trainer.Trainer"),
    Name("train_distributed_model", SECOND, "training.trainer.Trainer", "`torchrun -m annotated train`"),
    Name("train_model", SECOND, "training.trainer.Trainer", "`annotated train`"),
    Name(
        "load_trained_model", SECOND, "translation.translator.load_pretrained", "or `Translator.load(folder)`"
    ),
    Name("average", BOTH, "translation.model_folder.average_checkpoints"),
    # Looking at results
    Name("check_outputs", SECOND, "translation.translator.Translator.translate"),
    Name("run_model_example", SECOND, "translation.translator.Translator.n_best"),
    Name("draw", FIRST, "plots.plot_attention"),
    Name("mtx2df", SECOND, "plots.explore_attention"),
    Name("attn_map", SECOND, "plots.plot_attention"),
    Name("get_encoder", SECOND, "translation.watching.capture_attention", "`maps['encoder', layer]`"),
    Name("get_decoder_self", SECOND, "translation.watching.capture_attention", "`maps['decoder', layer]`"),
    Name("get_decoder_src", SECOND, "translation.watching.capture_attention", "`maps['cross', layer]`"),
    Name("visualize_layer", SECOND, "plots.plot_heads"),
    Name("viz_encoder_self", SECOND, "translation.translator.Translator.show_attention"),
    Name("viz_decoder_self", SECOND, "translation.translator.Translator.show_attention"),
    Name("viz_decoder_src", SECOND, "translation.translator.Translator.show_attention"),
    Name("example_mask", SECOND, "plots.plot_mask"),
    Name("example_positional", SECOND, "plots.plot_waves"),
    Name("is_interactive_notebook", SECOND, "", "a notebook imports, nothing imports it"),
    Name("show_example", SECOND, "", "a cell simply runs"),
    Name("execute_example", SECOND, "", "a cell simply runs"),
    Name("RUN_EXAMPLES", SECOND, "", "a cell simply runs"),
)


def find(ours: str) -> object:
    """Get what a path such as `data.Batch.make_std_mask` names. Raises ImportError or AttributeError."""
    parts = ours.split(".")
    split = next(i for i, part in enumerate(parts) if part[0].isupper() or i == len(parts) - 1)
    found: object = import_module(".".join(["annotated", *parts[:split]]))
    for part in parts[split:]:
        found = getattr(found, part)
    return found

"""From a trained model to a translation and its score.

translator     text in, text out
greedy         the likeliest token at each step
beam           beam search, and its length penalty
cache          the keys and values that both keep
limits         what a search may be asked for: settings, sentences, lengths
model_folder   a model on disk
tensor_files   weights on disk, checked before they are read
attention_maps the attention weights of a model, captured
eval_mode      a model without dropout and gradients, for a while
evaluation     BLEU, chrF, perplexity, alignment error, paired bootstrap
scoring        the scores of a model on a split of a corpus
"""

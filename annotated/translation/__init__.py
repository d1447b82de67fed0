"""From a trained model to a translation and its score.

translator     text in, text out
sentences      what a translator takes: which sentences, how long, in which batches
decoding       greedy and beam search
hypotheses     what a beam search ends with, and its length penalty
cache          the keys and values that decoding keeps
model_folder   a model on disk
tensor_files   weights on disk, checked before they are read
watching       a model's attention captured, or the model evaluated, for a while
evaluation     BLEU, chrF, perplexity, alignment error, paired bootstrap
scoring        the scores of a model on a split of a corpus
"""

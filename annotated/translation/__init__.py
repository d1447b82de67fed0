"""From a trained model to a translation and its score.

translator     text in, text out
decoding       greedy and beam search
cache          the keys and values that decoding keeps
limits         what a search may be asked for: settings, sentences, lengths; its length penalty
model_folder   a model on disk
tensor_files   weights on disk, checked before they are read
watching       a model's attention captured, or the model evaluated, for a while
evaluation     BLEU, chrF, perplexity, alignment error, paired bootstrap
scoring        the scores of a model on a split of a corpus
"""

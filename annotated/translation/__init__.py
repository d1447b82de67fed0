"""Translate text with a trained model.

translator     text in, text out
model_folder   a model on disk
tensor_files   weights on disk, checked before they are read
attention_maps the attention weights of a translation
evaluate       the scores of a model on a split of a corpus
"""

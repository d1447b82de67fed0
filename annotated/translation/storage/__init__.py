"""Models on disk.

model_folder   settings, weights and tokenizers in a folder; the models that come with the package
tensor_files   weights in safetensors, checked before they are used
"""

"""The model of the paper and nothing else, in the order in which to read it:

    attention   equation 1, several heads of it, and masks (sections 3.2.1 to 3.2.3)
    cache       what a decoder has computed for earlier positions: a search goes on from there
    layers      embeddings, feed-forward network, residual connections, encoder and decoder layer (3.1 to 3.4)
    positions   positional encodings (3.5)
    config      the size of a model (Table 3)
    variants    the parts of a model, and how a variant replaces some
    model       encoder, decoder and the whole (section 3.1, Figure 1)

Its loss, its schedule and its training loop stand beside this folder; `cpu_kernels` computes the same faster.
"""

"""The paper and nothing else, in the order in which to read it:

    attention   equation 1, several heads of it, and masks (sections 3.2.1 to 3.2.3)
    layers      what surrounds attention: residuals, feed-forward network, embeddings, positions (3.1 to 3.5)
    config      how large a model is (Table 3)
    parts       what it is put together from, and a variant may replace
    model       encoder, decoder and the whole (section 3.1, Figure 1)
    loss        label smoothing (section 5.4)
    schedule    the learning rate (section 5.3)

What computes the same faster is in `annotated.fast`.
"""

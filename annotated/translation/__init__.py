"""The translator: what it takes to train on text, to keep what was trained, and to translate with it.

    translator   text in, text out
    training     long runs, in a folder that survives being killed
    data         corpora of sentence pairs, and batches of them
    tokenizers   text to token ids and back
    storage      models on disk
    evaluation   scores of a model on a split
    interop      other libraries' models, to and from
    watch        a page that shows the inside of a model
    cli          the command `annotated`
    limits       how long sentences may be, and the engines that search
    devices, files

The paper's rooms import nothing from here.
"""

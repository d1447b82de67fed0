"""Training a model, from the call to the folder of its run:

    train           from sentence pairs to a translator in one call
    trainer         the training loop of long runs
    loss            label smoothing (section 5.4), readable and fast; R-Drop, which is newer
    schedule        the learning rate (section 5.3)
    precision       bf16
    validation      scores on the validation data
    early_stopping  the best score so far, and for how long it has stood
    checkpoint      the position of a run; resuming; the mean of several checkpoints
    run_folder      the folder of a run: saving checkpoints, the log, the lock
    distributed     the processes of a run
    config          the settings
    loop            the classic training loop, to read

In Python, `annotated.train` is the first of these.
"""

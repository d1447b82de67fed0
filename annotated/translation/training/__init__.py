"""Training a model, from the call to the folder of its run:

    train           from sentence pairs to a translator in one call
    run_settings    what a run is asked for, and what the text or the run to resume adds
    starting_model  the model that a run starts from, and what is tried out before its first update
    trainer         the training loop of long runs
    summed_loss     what a run minimizes: model and loss in one module, R-Drop, bf16
    validation      scores on the validation data, and early stopping
    auto_settings   settings for a text of one's own, by its size and the speed of this machine
    averaging       the end of a run: the mean of its checkpoints, where that is better
    checkpoint      saving a run and resuming it; the mean of several checkpoints
    run_folder      the folder of a run: saving checkpoints, the log, the lock
    config          the settings of training
    progress        the position of a run

In Python, `annotated.train` is the first of these. The way to an update is `train`, `Trainer.run`,
`train_epoch`, `update`.
"""

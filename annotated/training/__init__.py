"""Training.

loop         the training loop to read
train        from sentence pairs to a translator in one call
trainer      the trainer for long runs, and what it is made of:
  config       its settings
  update       one update: the loss, its gradient, the learning rate, Adam's step
  progress     where a run stands, and how far it is from its end; Ctrl-C, taken at the next good moment
  run_folder   a run on disk: checkpoints and their mean, log, lock; what it takes to go on with it
  devices      where to compute, how precisely, in how many processes
rdrop        R-Drop, a regularisation newer than the paper
"""

"""Training.

loop         the training loop to read
train        from sentence pairs to a translator in one call
trainer      the trainer for long runs, and what it is made of:
  config       its settings
  update       one update: the loss, its gradient, the learning rate, Adam's step
  progress     where a run stands, and how far it is from its end
  checkpoint   a run on disk: checkpoints, their mean, the log, the lock
  distributed  devices, precision, processes
rdrop        R-Drop, a regularisation newer than the paper
"""

"""Training.

loop         the training loop to read
trainer      the trainer for long runs
config       its settings
run_folder   a run on disk: checkpoints, log, lock
rdrop        R-Drop, a regularisation newer than the paper
devices      where to compute, how precisely, in how many processes
"""

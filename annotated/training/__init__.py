"""Training.

train        from sentence pairs to a translator in one call
trainer      the training loop of long runs
loss         the training loss, with R-Drop, a regularisation newer than the paper
validation   scores on the validation data
checkpoint   what a checkpoint holds; the mean of several
run_folder   the folder of a run: checkpoints, the log, the lock
distributed  devices, precision, processes
config       the settings
loop         the classic training loop, to read
"""

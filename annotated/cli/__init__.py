"""The command line. Nothing of what is read before a command runs imports PyTorch.

parser      `annotated COMMAND`: reads the arguments, files of settings and --variants, runs the command
options     the commands and their flags, as classes of settings
flags       such a class as flags
train       the command, and what others share with it
translate   the commands translate and evaluate
models      the commands average and export
release     the command reproduce
recipes     how the shipped models were made
"""

"""The command line.

parser      `annotated COMMAND`: reads the arguments and --variants, runs the command
options     the commands and their flags, as classes of settings
flags       such a class as flags
settings    files of settings: --config and --print-config
common      what several commands need
release     a model with its scores and its card
recipes     how the shipped models were made

Each command has a module of its name: train, translate, evaluate, average, export, reproduce. Nothing of
what is read before a command runs imports PyTorch.
"""

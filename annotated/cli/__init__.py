"""The command line. Nothing that is read before a command runs imports PyTorch.

main        `annotated COMMAND`: read arguments, files of settings and --variants, then run the command
flags       the commands and their flags
train       the command, and what others share with it
translate   the command, and what evaluate shares with it
evaluate    the command
models      the commands average, export and reproduce
recipes     how the shipped models were trained, in TOML
"""

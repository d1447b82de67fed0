"""The command line. Nothing that is read before a command runs imports PyTorch."""

"""The command line: options (`parser`), what they do (`commands`), and how the shipped models were made."""

"""The drawings of *a cat runs*, made from the numbers of notebook 00's tiny model."""

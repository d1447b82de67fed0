"""Fine-tune an opus-mt model on pairs of your own: the quick way to a translator that is good at your text.

    pip install ".[interop]"      # in a clone of this repository
    python examples/finetune_opus_mt.py Helsinki-NLP/opus-mt-en-de mine.tsv runs/mine

The first argument is a model's name at Hugging Face, or a folder that holds one. The model keeps its
tokenizers and its shape; a low rate keeps what it knows. `annotated translate --model runs/mine` uses it.
The same command with --resume behind it goes on with a run that was stopped.
"""

import sys

import annotated
from annotated import Stopped
from annotated.translation.interop import load_marian

# A low rate, few epochs, and of their weights the best rather than the last.
SETTINGS = {"learning_rate": 5e-5, "epochs": 3, "max_tokens": 2048, "average_of": "best", "average": 1}


def main(opus: str, pairs: str, out: str, **settings: object) -> annotated.Translator:
    """Fine-tune on a TSV file, or on any pairs that `annotated.train` takes."""
    start = f"{out}-start"
    annotated.save_model(start, *load_marian(opus))
    return annotated.train(pairs, out, init_from=start, **{**SETTINGS, **settings})


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--resume"]
    if len(arguments) != 3:
        sys.exit(__doc__)
    try:
        main(*arguments, resume="--resume" in sys.argv)
    except (Stopped, ValueError, OSError, ImportError) as error:
        sys.exit(str(error))

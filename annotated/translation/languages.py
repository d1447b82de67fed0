"""What a language asks of BLEU, which counts words."""

import re
from collections.abc import Iterable

# Languages whose words 13a, which goes by spaces, would not find: it counts a Thai sentence as one word. For
# Thai, Lao, Khmer and Burmese sacreBLEU cuts no words without a download.
BLEU_TOKENIZERS = {"zh": "zh", "yue": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}
BLEU_TOKENIZERS |= dict.fromkeys(("th", "lo", "km", "my"), "char")

UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")


def bleu_tokenizer(language: str | None) -> str:
    """Find sacreBLEU's tokenizer for a target language such as "de" or "zh-Hant"; 13a for one not known."""
    return BLEU_TOKENIZERS.get(re.split("[-_]", (language or "").lower())[0], "13a")


def lacks_spaces(sentences: Iterable[str]) -> bool:
    """Tell whether over a third of the text is of scripts without spaces between words, as in Chinese."""
    text = "".join(sentences)
    return 3 * len(UNSPACED.findall(text)) > len(text)

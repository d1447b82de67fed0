"""Draw the corpus and write it to where the package reads it."""

import gzip

from annotated.data.grammar import FILE
from annotated.files import replacing
from tools.grammar import corpus_lines

data = gzip.compress("".join(f"{line}\n" for line in corpus_lines()).encode(), mtime=0)
with replacing(FILE) as partial:
    partial.write_bytes(data)
print(f"{FILE}: {len(data):,} bytes")

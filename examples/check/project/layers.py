"""A module beside the file that is checked: that file imports it as it always does."""

import math


def scores_of(query, key):
    return query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))

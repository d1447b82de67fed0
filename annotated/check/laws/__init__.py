"""The laws, in the order in which a report has them: parts, then the model made of them, then its use."""

from annotated.check.law import LAWS as LAWS
from annotated.check.laws import attention, layers, learning, model, parts, search, training
from annotated.check.user_code import PARTS

MODULES = [m.__name__ for m in (attention, parts, model, layers, learning, training, search)]
PLACES = {part: place for place, part in enumerate(PARTS)}

# By part, then by module and line; what is only remarked comes last.
LAWS.sort(key=lambda law: MODULES.index(law.check.__module__))
LAWS.sort(key=lambda law: (law.name == "attention: empty rows", PLACES[law.part]))

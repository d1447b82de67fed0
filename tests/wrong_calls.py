"""Wrong uses of the public names. `mypy` must report each: for one that it misses, the ignore is unused."""

import annotated

annotated.train(1, 2, 3, 4, nonsense=True)  # type: ignore[arg-type, call-arg]
annotated.load_pretrained("multi30k-en-de").no_such_method()  # type: ignore[attr-defined]
annotated.plots.plot_nothing()  # type: ignore[attr-defined]
annotated.no_such_name  # type: ignore[attr-defined]  # noqa: B018

from .charts import explore_attention as explore_attention, explore_masks as explore_masks
from .drawing import as_words as as_words
from .figures import (
    plot_attention as plot_attention,
    plot_beam as plot_beam,
    plot_mask as plot_mask,
    plot_schedules as plot_schedules,
)
from .notebook import setup_notebook as setup_notebook, show_source as show_source
from .pages import step_through as step_through, watch_learning as watch_learning

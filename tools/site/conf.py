"""Sphinx's settings. build.py puts the sources together and runs Sphinx on them."""

from annotated import __version__

project = "annotated"
author = "the authors of annotated"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "extension"]
exclude_patterns = ["_static", "_extra"]
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "attrs_inline"]
myst_heading_anchors = 3
mathjax_path = "mathjax/tex-chtml.js"
mathjax3_config = {"options": {"enableMenu": False}}

html_theme = "sphinx_book_theme"
html_title = "annotated"
html_logo = "_static/mark.svg"
html_show_copyright = False
html_static_path = ["_static"]
html_favicon = "_static/mark.svg"
html_extra_path = ["_extra"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "annotated", "alt_text": "annotated: to the start page"},
    "use_download_button": False,
    "use_fullscreen_button": False,
    "show_toc_level": 2,
    "max_navbar_depth": 1,
    "navbar_persistent": [],
}

default_role = "code"
autodoc_typehints_format = "short"
# Other projects' names lead nowhere: their references are on other hosts. Ours must all be there.
nitpick_ignore_regex = [
    ("py:.*", r"(?!annotated\.).*"),
    ("py:class", r"annotated\.check\.adapt\.Model"),
    # These stand for any type.
    ("py:class", r"annotated\..*\.(Item|Result|Dataclass|Function)"),
]

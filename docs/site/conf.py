"""Settings of the documentation site, which ``make docs`` writes: Sphinx over the Markdown files that are read in the repository, too.

The whole repository is the source, so that a link between two files is the same in both. What is no page (a script, a schema) is copied for who follows a link to it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import megalens

project = "Megalens"
author = "The Megalens developers"
copyright = author
version = release = megalens.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "contract",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "*.md",
    "protocol/**README.md",
    "megalens/**README.md",
    "src/**README.md",
    "examples/*/README.md",
    "tests/corpus/README.md",
    "bench/results/README.md",
]
# Folders that are not even looked into.
exclude_patterns = [".*", "node_modules", "lib", "ui-tests", "tests/fuzz", "protocol/fixtures"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
napoleon_google_docstring = False
napoleon_use_ivar = True

html_theme = "furo"
html_title = f"Megalens {version}"
html_show_sourcelink = False
html_copy_source = False
html_extra_path = ["top"]

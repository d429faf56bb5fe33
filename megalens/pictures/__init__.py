"""The hosts of the views outside a page: the engine that runs their code, the widgets of a cell, and reports."""

"""Hosts of the views outside a page: the engine that runs their code, widgets of a cell, and reports."""

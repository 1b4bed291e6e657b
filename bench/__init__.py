"""Roof: the simulated board, replay of measured grids, the harness and the reports."""

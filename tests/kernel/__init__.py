"""The board code against a real kernel: ``make kernel-test``."""

"""Sysfs trees for tests."""

"""Ground floor: measurements in, latency and power tables out."""

from estimators.errors import FlamegovError, PolicyError, ProfileError, TableError
from estimators.table import FORMAT_VERSION, LatencyTable, TableHeader

__all__ = [
    "FORMAT_VERSION",
    "FlamegovError",
    "LatencyTable",
    "PolicyError",
    "ProfileError",
    "TableError",
    "TableHeader",
]

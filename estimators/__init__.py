"""Ground floor: measurements in, latency and power tables out."""

"""NeuralPower: runtime, power and energy per layer, and power tables for the governor."""

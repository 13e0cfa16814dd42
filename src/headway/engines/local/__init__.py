"""The local engine: commands of one machine, side by side, each under its own keeper."""

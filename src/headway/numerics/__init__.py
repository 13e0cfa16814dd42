"""Array mathematics that knows no machine."""

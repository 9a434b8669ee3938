"""Runs Postrider and its peers in turn on one server, and says what came of it. Needs nothing but Python and psql."""

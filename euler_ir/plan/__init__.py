"""The plan: ordered steps, and a place in memory for every buffer. Derived from a graph, never edited."""

"""Which number is wrong, where it became so, and on how small a graph.

``measure``, ``exact``, ``equations``, ``agreement`` and ``judge`` say how far a number may be from what it means;
``compare``, ``bisect``, ``nans`` and ``reduce`` answer the commands of those names, by what stands beside them.
"""

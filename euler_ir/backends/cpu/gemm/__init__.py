"""Matrix products in generated code: register tiles on packed panels (K. Goto and R. van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", 2008; F. Van Zee and R. van de Geijn, "BLIS", 2015)."""

"""A whole step laid open on one page: ``collect`` makes the data, ``page`` the file that shows them."""

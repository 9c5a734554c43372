"""The fields of a model's config from another program's `config.json`, checked one by one."""

import sys


def checked_fields(document, path, fields, supported):
    """{field of ours: value} by `fields`: rows (field, key of `document`, its types, what it is where it is left out).

    A default of Ellipsis says that the key must be there. `supported` holds keys that change what is computed, with the
    one value that is known here. Raises ValueError, which begins with `path`, for what is missing, of another type or
    not supported.
    """
    for key, known in supported.items():
        if document.get(key, known) != known:
            raise ValueError(f"{path} sets {key} to {document[key]}, which is not supported here.")
    found = {}
    for field, key, types, default in fields:
        value = document.get(key, default)
        if value is ...:
            raise ValueError(f"{path} does not give {key}, without which the model has no shape.")
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise ValueError(f"{path} sets {key} to {value!r}, which is not of the right kind.")
        if types == int | float and not abs(value) <= sys.float_info.max:
            raise ValueError(f"{path} sets {key} to {value}, which is no number to compute with.")
        found[field] = value
    return found

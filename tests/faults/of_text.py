"""Faults of the text form."""

from fault import Fault

FAULTS = (
    Fault(
        "prints-0-for-minus-0",
        "-0.0 is printed as 0.0.",
        "text.literals",
        "    number = float(scalar)\n",
        "    number = float(scalar) + 0.0\n",
        ("tests/graph/test_text.py::test_every_bit_pattern_of_a_constant_round_trips[f16]",),
    ),
    Fault(
        "prints-six-digits",
        "f64 numbers are printed with six digits.",
        "text.literals",
        "    return repr(number)\n",
        '    return f"{number:.6g}"\n',
        ("tests/graph/test_text.py::test_every_bit_pattern_of_a_constant_round_trips[f64]",),
    ),
    Fault(
        "prints-any-nan-alike",
        "The bits of a NaN are lost in print.",
        "text.literals",
        'return "nan" if _is_usual_nan(scalar, dtype) else',
        'return "nan" if True else',
        ("tests/graph/test_text.py::test_every_bit_pattern_of_a_constant_round_trips[f16]",),
    ),
    Fault(
        "prints-a-number-too-short",
        "The shortest text of an f32 is found with one digit too few.",
        "text.literals",
        "if np.array(short, dtype.numpy).tobytes() == scalar.tobytes():",
        "if np.isclose(short, number):",
        ("tests/graph/test_text.py::test_a_training_step_round_trips[False]",),
    ),
    Fault(
        "big-endian-constants",
        "Large constants are written in the byte order of another machine.",
        "absent",
        'array.dtype.newbyteorder("<")',
        'array.dtype.newbyteorder(">")',
        ("tests/graph/test_resources.py::test_every_bit_comes_back_from_the_file_and_from_the_text",),
    ),
    Fault(
        "flag-read-as-false",
        "The parser takes every bool attribute for false.",
        "text.literals",
        'return literal.text == "true"',
        "return False",
        ("tests/graph/test_text.py::test_the_look",),
    ),
    Fault(
        "initializer-rounded",
        "The numbers of an initializer are rounded when they are read.",
        "text.literals",
        "else _read_float(item) for item in literal.items",
        "else round(_read_float(item), 1) for item in literal.items",
        ("tests/graph/test_text.py::test_a_training_step_round_trips[False]",),
    ),
)

"""What a symbolic tensor can do: the functions of the DSL that take values, and the methods built from them.

Every function here follows numpy's rules for broadcasting, axes and slicing, spells out broadcasts and casts as
operators, and ends in ``graph.emit``. Rules of operators (gradients, decompositions) are written with the same
functions that users write models with.
"""

from euler_ir.tensor.lifting import (  # noqa: F401
    Tensor,
    as_value,
    broadcast_shapes_of,
    broadcast_to,
    cast,
    constant_like,
    full_like,
    lift,
)
from euler_ir.tensor.elementwise import (  # noqa: F401
    absolute,
    add,
    cos,
    divide,
    equal,
    erf,
    erfc,
    exp,
    floor,
    floor_divide,
    gelu,
    greater,
    greater_equal,
    isnan,
    less,
    less_equal,
    log,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    normal_cdf,
    normal_cdf_tanh,
    normal_pdf,
    not_equal,
    power,
    relu,
    remainder,
    rsqrt,
    sigmoid,
    sign,
    silu,
    sin,
    sqrt,
    stop_gradient,
    subtract,
    tanh,
    where,
)
from euler_ir.tensor.shape import (  # noqa: F401
    concatenate,
    expand_dims,
    flip,
    pad,
    pad_with_interior,
    reshape,
    squeeze,
    stack,
    swap_axes,
    transpose,
)
from euler_ir.tensor.indexing import (  # noqa: F401
    dynamic_update_slice,
    getitem,
    one_hot,
    scatter_add,
    split,
    take,
)
from euler_ir.tensor.reduction import (  # noqa: F401
    argmax,
    argmin,
    cumsum,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    prod,
    softmax,
    sum,
)
from euler_ir.tensor.network import (  # noqa: F401
    attention,
    attention_with_logsumexp,
    cross_entropy,
    dropout,
    layer_norm,
    matmul,
    rms_norm,
)
from euler_ir.tensor.methods import TensorMethods  # noqa: F401

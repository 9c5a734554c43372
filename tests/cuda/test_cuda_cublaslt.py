"""The emulator's cuBLASLt takes and refuses what NVIDIA's does, and more where that would be undefined."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from euler_ir.backends.cuda import toolkit
from euler_ir.backends.cuda.emulator import cublaslt as emulated
from euler_ir.backends.cuda.gemm import api, cublaslt
from euler_ir.backends.cuda.gemm.api import (
    Algorithm,
    Api,
    Epilogue,
    Handle,
    HeuristicResult,
    LayoutAttribute,
    MatmulAttribute,
    PreferenceAttribute,
)
from euler_ir.backends.cuda.gemm.cublaslt import CublasLt, alignment, workspace_bytes
from euler_ir.errors import LoweringError

KINDS = {
    "MatmulDesc": ((api.ComputeType.F32, api.DataType.F32), MatmulAttribute),
    "MatrixLayout": ((api.DataType.BF16, 24, 5, 32), LayoutAttribute),
    "MatmulPreference": ((), PreferenceAttribute),
}


@pytest.fixture(params=["emulator", "NVIDIA"])
def library(request):
    if request.param == "emulator":
        return Api(emulated.load())
    try:
        return Api(cublaslt.load())
    except LoweringError as error:
        pytest.skip(error.message)


def status(library, name, *arguments):
    """The name of what the function ``name`` returns, without its prefix; SUCCESS when it is that."""
    try:
        library.call(name, *arguments)
    except LoweringError as error:
        return error.message.split("CUBLAS_STATUS_")[1]
    return "SUCCESS"


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_keep_what_they_are_set_to(library, kind):
    arguments, attributes = KINDS[kind]
    values = {attribute: 16 * (number + 1) for number, attribute in enumerate(attributes)}
    handle = Handle(library, kind, *arguments, attributes=values)
    assert {attribute: handle.get(attribute) for attribute in attributes} == values


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_of_another_size_are_refused(library, kind):
    arguments, attributes = KINDS[kind]
    handle, value, written = Handle(library, kind, *arguments), ctypes.c_int64(1), ctypes.c_size_t()
    for attribute in attributes:
        number, size = attribute.value[0], ctypes.sizeof(attribute.value[1])
        for given in (2, 4, 8):
            wanted = "SUCCESS" if given == size else "INVALID_VALUE"
            assert status(library, f"{kind}SetAttribute", handle.value, number, ctypes.byref(value), given) == wanted
            space = ctypes.byref(value), given, ctypes.byref(written)
            if given <= size:
                assert status(library, f"{kind}GetAttribute", handle.value, number, *space) == wanted
    assert status(library, f"{kind}SetAttribute", handle.value, 99, ctypes.byref(value), 4) == "INVALID_VALUE"
    assert status(library, f"{kind}SetAttribute", None, number, ctypes.byref(value), size) == "INVALID_VALUE"
    assert status(library, f"{kind}SetAttribute", handle.value, number, None, size) == "INVALID_VALUE"
    assert status(library, f"{kind}Destroy", None) == "SUCCESS"


def test_what_is_not_set_is_as_documented(library):
    operation = Handle(library, "MatmulDesc", api.ComputeType.F32, api.DataType.F32)
    assert operation.get(MatmulAttribute.EPILOGUE) == Epilogue.NONE
    assert operation.get(MatmulAttribute.TRANSA) == operation.get(MatmulAttribute.EPILOGUE_AUX_LD) == 0
    layout = Handle(library, "MatrixLayout", api.DataType.F32, 3, 4, 5)
    assert (layout.get(LayoutAttribute.BATCH_COUNT), layout.get(LayoutAttribute.STRIDED_BATCH_OFFSET)) == (1, 0)
    preference = Handle(library, "MatmulPreference")
    assert preference.get(PreferenceAttribute.MIN_ALIGNMENT_C_BYTES) == 256
    assert preference.get(PreferenceAttribute.MAX_WORKSPACE_BYTES) == 0
    assert preference.get(PreferenceAttribute.REDUCTION_SCHEME_MASK) == 7


def test_nothing_runs_without_the_library_s_handle(library):
    layout = Handle(library, "MatrixLayout", api.DataType.F32, 4, 4, 4).value
    operation = Handle(library, "MatmulDesc", api.ComputeType.F32, api.DataType.F32).value
    preference, count = Handle(library, "MatmulPreference").value, ctypes.c_int()
    given = None, operation, *[layout] * 4, preference, 1, (HeuristicResult * 1)(), ctypes.byref(count)
    assert status(library, "MatmulAlgoGetHeuristic", *given) == "NOT_INITIALIZED"


def test_versions_and_statuses_have_names(library):
    assert library.version >= (12, 0) and library.status_name(0) == "CUBLAS_STATUS_SUCCESS"
    assert library.status_name(15) == "CUBLAS_STATUS_NOT_SUPPORTED"


# -- what the emulator refuses beyond that -----------------------------------------------------------------------------


class Call:
    """A product of 8 x 8 matrices as the emulator's library is called, whose arguments can be made wrong."""

    def __init__(self, inner=8, workspace=0, **attributes):
        self.library = Api(emulated.load())
        self.handle = ctypes.c_void_p()
        self.library.call("Create", ctypes.byref(self.handle))
        self.kind = (api.ComputeType.F32, api.DataType.F32)
        self.type = api.DataType.F32
        self.attributes = {MatmulAttribute[name]: value for name, value in attributes.items()}
        self.shapes = [(8, inner, 8), (inner, 8, inner), (8, 8, 8), (8, 8, 8)]
        self.memory = np.zeros(1 << 14, np.uint8)
        self.begin = -self.memory.ctypes.data % 256 + self.memory.ctypes.data
        self.addresses = [self.begin + 2048 * n for n in range(4)]
        self.workspace_bytes = self.promised = workspace
        self.workspace = self.begin + 8192
        self.alignment = 256

    def prepare(self):
        self.operation = Handle(self.library, "MatmulDesc", *self.kind, attributes=self.attributes)
        self.layouts = [Handle(self.library, "MatrixLayout", self.type, *shape) for shape in self.shapes]
        alignments = {each: self.alignment for each in PreferenceAttribute if "ALIGNMENT" in each.name}
        preference = Handle(
            self.library,
            "MatmulPreference",
            attributes={PreferenceAttribute.MAX_WORKSPACE_BYTES: self.promised, **alignments},
        )
        result, count = (HeuristicResult * 1)(), ctypes.c_int()
        layouts = [layout.value for layout in self.layouts]
        given = self.handle, self.operation.value, *layouts, preference.value, 1, result, ctypes.byref(count)
        found = status(self.library, "MatmulAlgoGetHeuristic", *given)
        self.algorithm = result[0].algorithm if count.value else Algorithm()
        return found

    def run(self):
        one, none = ctypes.c_float(1), ctypes.c_float(0)
        a, b, c, d = zip(self.addresses, (layout.value for layout in self.layouts))
        given = self.operation.value, ctypes.byref(one), *a, *b, ctypes.byref(none), *c, *d
        memory = self.algorithm, self.workspace, self.workspace_bytes, None
        return status(self.library, "Matmul", self.handle, *given, *memory)


def test_a_call_that_is_right_runs():
    call = Call()
    assert call.prepare() == call.run() == "SUCCESS"


@pytest.mark.parametrize("number, shape", [(0, (8, 9, 8)), (1, (9, 8, 9)), (2, (8, 8, 7)), (3, (0, 8, 8))])
def test_matrices_that_do_not_fit_are_refused(number, shape):
    call = Call()
    call.shapes[number] = shape
    assert call.prepare() == "INVALID_VALUE"


@pytest.mark.parametrize(
    "kind, dtype",
    [
        ((api.ComputeType.F64, api.DataType.F64), api.DataType.F32),
        ((api.ComputeType.F32, api.DataType.F64), api.DataType.F32),
        ((api.ComputeType.F32, api.DataType.F32), api.DataType.F64),
        ((api.ComputeType.TF32, api.DataType.F32), api.DataType.BF16),
    ],
)
def test_types_that_do_not_go_together_are_not_supported(kind, dtype):
    call = Call()
    call.kind, call.type = kind, dtype
    assert call.prepare() == "NOT_SUPPORTED"


def test_epilogues_need_what_they_read_and_where():
    somewhere = Call().begin
    aligned = {"BIAS_POINTER": somewhere, "EPILOGUE_AUX_POINTER": somewhere, "EPILOGUE_AUX_LD": 8}
    assert Call(EPILOGUE=Epilogue.GELU_AUX_BIAS, **aligned).prepare() == "SUCCESS"
    for name, value, wanted in (
        ("BIAS_POINTER", 0, "INVALID_VALUE"),
        ("BIAS_POINTER", somewhere + 4, "NOT_SUPPORTED"),
        ("EPILOGUE_AUX_POINTER", 0, "INVALID_VALUE"),
        ("EPILOGUE_AUX_POINTER", somewhere + 8, "NOT_SUPPORTED"),
        ("EPILOGUE_AUX_LD", 4, "INVALID_VALUE"),
        ("EPILOGUE_AUX_LD", 12, "NOT_SUPPORTED"),
        ("EPILOGUE", 77, "NOT_SUPPORTED"),
    ):
        assert Call(**{"EPILOGUE": Epilogue.GELU_AUX_BIAS, **aligned, name: value}).prepare() == wanted, name
    call = Call(EPILOGUE=Epilogue.BIAS, **aligned)
    call.kind, call.type = (api.ComputeType.F64, api.DataType.F64), api.DataType.F64
    assert call.prepare() == "NOT_SUPPORTED"


@pytest.mark.parametrize("number", range(4))
def test_pointers_less_aligned_than_promised_are_refused(number):
    call = Call()
    assert call.prepare() == "SUCCESS"
    call.addresses[number] += 128
    assert call.run() == "INVALID_VALUE"
    call.alignment = 128
    assert call.prepare() == call.run() == "SUCCESS"


def test_workspace_that_is_smaller_than_promised_is_refused():
    call = Call(inner=64, workspace=1024)
    assert call.prepare() == call.run() == "SUCCESS"
    call.workspace_bytes = 256
    assert call.run() == "INVALID_VALUE"
    call.workspace_bytes, call.workspace = 1024, call.workspace + 16
    assert call.run() == "INVALID_VALUE"


def test_handles_that_are_gone_are_refused():
    call, layout = Call(), ctypes.c_void_p()
    assert call.prepare() == "SUCCESS"
    call.library.call("MatrixLayoutCreate", ctypes.byref(layout), api.DataType.F32, 8, 8, 8)
    call.layouts[1] = SimpleNamespace(value=layout)
    assert call.run() == "SUCCESS"
    assert status(call.library, "MatmulDescDestroy", layout) == "INVALID_VALUE"
    assert status(call.library, "MatrixLayoutDestroy", layout) == "SUCCESS"
    assert call.run() == status(call.library, "MatrixLayoutDestroy", layout) == "INVALID_VALUE"


# -- on this side ------------------------------------------------------------------------------------------------------


def test_parts_of_a_sum_never_meet_in_the_type_of_the_result(monkeypatch):
    """A split product is rounded once: the workspace holds its parts in f32."""
    seen = {}

    class Recorded(Handle):
        def __init__(self, api, kind, *arguments, attributes):
            seen.update(attributes)
            super().__init__(api, kind, *arguments, attributes=attributes)

    monkeypatch.setattr(cublaslt, "Handle", Recorded)
    library = CublasLt(Api(emulated.load()), 1 << 16)
    layout = Handle(library.api, "MatrixLayout", api.DataType.F32, 8, 8, 8)
    operation = Handle(library.api, "MatmulDesc", api.ComputeType.F32, api.DataType.F32)
    library.prepare("problem", operation, [(4096, layout)] * 4, (ctypes.c_float(1), ctypes.c_float(0)), 0)
    assert seen[PreferenceAttribute.REDUCTION_SCHEME_MASK] == api.ReductionScheme.COMPUTE_TYPE
    assert seen[PreferenceAttribute.MAX_WORKSPACE_BYTES] == 1 << 16


def test_heuristics_are_asked_once_for_each_problem_and_alignment(monkeypatch):
    library, asked = CublasLt(Api(emulated.load()), 1 << 16), []
    choose = library._choose
    monkeypatch.setattr(library, "_choose", lambda *given: asked.append(given[2]) or choose(*given))
    layout = Handle(library.api, "MatrixLayout", api.DataType.F32, 8, 8, 8)
    operation = Handle(library.api, "MatmulDesc", api.ComputeType.F32, api.DataType.F32)
    factors = ctypes.c_float(1), ctypes.c_float(0)
    for address in (4096, 8192, 4096 + 64):
        library.prepare("problem", operation, [(address, layout)] * 4, factors, 0)
    assert asked == [(256,) * 4, (64,) * 4]
    library.prepare("another", operation, [(4096, layout)] * 4, factors, 0)
    assert len(asked) == 3


def test_alignment_is_a_power_of_two_up_to_256():
    assert [alignment(address) for address in (0, 1, 2, 12, 4096, 4096 + 16)] == [256, 1, 2, 4, 256, 16]


def test_workspace_is_larger_on_hopper():
    assert workspace_bytes("sm_90") == workspace_bytes("sm_90a") == 32 << 20
    assert workspace_bytes("sm_80") == workspace_bytes("sm_86") == 4 << 20


def test_without_the_library_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(toolkit, "installed", lambda *arguments: iter(()))
    with pytest.raises(LoweringError) as caught:
        toolkit.load_library(["libcublasLt.so.0"], (), "cuBLASLt", hint="pip install nvidia-cublas-cu12")
    assert "cuBLASLt" in caught.value.message and "nvidia-cublas" in caught.value.hint
    assert "libcublasLt.so.0" in caught.value.details[0]

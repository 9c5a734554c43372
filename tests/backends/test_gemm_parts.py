"""Register tiles and packing, called one by one, against numpy."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

from euler_ir.backends.cpu import jit
from euler_ir.backends.cpu.gemm.pack import overrun, pack_ir, pack_symbol
from euler_ir.backends.cpu.gemm.tile import Tile, best_tile, tile_ir, tile_symbol
from euler_ir.dtypes import f32, f64

DTYPES = {"f32": f32, "f64": f64}


def load(definition, symbol, *types):
    code = jit.LoadedCode([jit.compile_object(definition.module())], [symbol])
    function = ctypes.CFUNCTYPE(None, *types)(code.address(symbol))
    function.code = code
    return function


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_packed_panel_holds_each_step_side_by_side_and_nothing_outside_is_read(dtype, across, side):
    tile = best_tile(DTYPES[dtype])
    width = tile.rows if side == "left" else tile.columns
    pack = load(
        pack_ir(tile, width, across),
        pack_symbol(tile, width, across),
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
    )
    for valid in (width, width - 1, 1):
        for inner in (1, 5, tile.lanes, 3 * tile.lanes + 2):
            shape = (valid, inner) if across else (inner, valid)
            # What lies around the source is NaN: whatever reads it shows.
            memory = np.full((shape[0], shape[1] + 3), np.nan, tile.dtype.numpy)
            memory[:, : shape[1]] = np.arange(np.prod(shape)).reshape(shape)
            target = np.zeros(inner * width + overrun(tile, width), tile.dtype.numpy)
            pack(memory.ctypes.data, memory.shape[1], valid, inner, target.ctypes.data)
            source = memory[:, : shape[1]]
            packed = target[: inner * width].reshape(inner, width)
            np.testing.assert_array_equal(packed[:, :valid], source.T if across else source)
            assert np.isfinite(target).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_tile_multiplies_packed_panels(dtype, accumulate):
    tile = best_tile(DTYPES[dtype])
    generator = np.random.default_rng(0)
    for rows in (tile.rows, 1):
        multiply = load(
            tile_ir(tile, rows),
            tile_symbol(tile, rows),
            ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64, ctypes.c_bool,
        )
        for inner in (0, 1, 7, 64):
            for columns in (tile.columns, tile.columns - 1, tile.lanes, 1):
                left = generator.standard_normal((inner, tile.rows)).astype(tile.dtype.numpy)
                right = generator.standard_normal((inner, tile.columns)).astype(tile.dtype.numpy)
                before = generator.standard_normal((rows, columns + 2)).astype(tile.dtype.numpy)
                result = before.copy()
                multiply(
                    inner, left.ctypes.data, right.ctypes.data, result.ctypes.data, columns + 2, columns, accumulate
                )
                want = left[:, :rows].T.astype(np.float64) @ right[:, :columns] + accumulate * before[:, :columns]
                atol = 64 * np.finfo(tile.dtype.numpy).eps * 8
                np.testing.assert_allclose(result[:, :columns], want, rtol=0, atol=atol)
                np.testing.assert_array_equal(result[:, columns:], before[:, columns:])


@pytest.mark.parametrize(
    "triple, cpu, rows, lanes, multiply_add",
    [
        ("x86_64-unknown-linux-gnu", "haswell", 6, 8, "vfmadd"),
        ("x86_64-unknown-linux-gnu", "skylake-avx512", 12, 16, "vfmadd"),
        ("aarch64-unknown-linux-gnu", "neoverse-n1", 12, 4, "fmla"),
    ],
)
def test_every_sum_of_a_tile_stays_in_a_register_on_other_machines_too(triple, cpu, rows, lanes, multiply_add):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    tile = Tile(f32, rows, 2, lanes)
    features = "-prefer-256-bit" if lanes == 16 else ""
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=2)
    module = llvm.parse_assembly(tile_ir(tile, rows).module())
    module.triple = triple
    passes = llvm.create_new_module_pass_manager()
    for add in ("sroa", "instruction_combine", "new_gvn", "simplify_cfg"):
        getattr(passes, f"add_{add}_pass")()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes.run(module, llvm.create_pass_builder(machine, options))
    assembly = machine.emit_assembly(module)
    # Four steps in the unrolled loop and one in that of the rest, each two vectors for every row.
    assert assembly.count(multiply_add) == 5 * rows * 2
    assert "Spill" not in assembly

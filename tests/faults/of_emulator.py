"""Faults of the CUDA emulator: of what runs threads, of what watches them, and of what it computes for them."""

from fault import Fault

FAULTED = "tests/cuda/test_cuda_emulator_faults.py"
FAULT = f"{FAULTED}::test_a_fault_is_reported_with_its_place_and_the_kernel_without_it_runs"
RACE = "tests/cuda/test_cuda_emulator_races.py::test_a_race_is_found_in_every_order_with_both_lines_and_none_without_it"
BOUNDS = "tests/cuda/test_cuda_emulator_races.py::test_reads_just_outside_of_memory_and_arrays"
WARPS = "tests/cuda/test_cuda_emulator_warps.py"
MATRICES = "tests/cuda/test_cuda_emulator_matrices.py"
PROCESS = "tests/cuda/test_cuda_emulator_process.py"
ROUNDING = f"{WARPS}::test_every_half_is_widened_and_all_kinds_of_floats_are_rounded"


def fault(name: str, imitates: str, file: str, old: str, new: str, *killers: str) -> Fault:
    path = f"backends/cuda/emulator/{file}"
    return Fault(
        name, imitates, path.removesuffix(".py").replace("/", ".") if file.endswith(".py") else path, old, new, killers
    )


FAULTS = (
    # -- threads, warps and blocks -------------------------------------------------------------------------------------
    fault(
        "lanes-that-wait-for-each-other",
        "Two lanes that wait for each other in different operations are not reported where that happens.",
        "runtime/scheduler.cpp",
        "        if (other.mask >> lane & 1) fail_disagreement(",
        "        if (false) fail_disagreement(",
        f"{FAULT}[shuffles_in_two_ways]",
    ),
    fault(
        "first-waiting-lane-alone",
        "A lane looks at one lane that waits, and does not find those that came to its operation before.",
        "runtime/scheduler.cpp",
        "            request.first = other.first;\n            break;\n        }\n",
        "            request.first = other.first;\n        }\n        break;\n",
        f"{WARPS}::test_lanes_meet_in_parts_of_the_warp_and_then_in_the_whole",
    ),
    fault(
        "any-barrier-is-one",
        "Threads at barriers on different lines pass together.",
        "runtime/scheduler.cpp",
        "is_one = threads[i].barrier == first.barrier && threads[i].barrier_line == first.barrier_line;",
        "is_one = threads[i].barrier != nullptr;",
        f"{FAULT}[comes_to_two_barriers]",
    ),
    fault(
        "all-but-one",
        "__syncthreads_and is true where one predicate is not.",
        "runtime/scheduler.cpp",
        "true_predicates == thread_count}",
        "true_predicates >= thread_count - 1}",
        f"{WARPS}::test_barriers_that_count",
    ),
    fault(
        "finished-lanes-are-forgotten",
        "A warp whose lanes left waits at __syncwarp for ever.",
        "runtime/scheduler.cpp",
        "if (request.first->arrived == mask_of(warp, request)) execute(warp, request);",
        "",
        f"{WARPS}::test_a_warp_meets_without_the_lanes_that_left",
    ),
    fault(
        "threads-always-ascend",
        "Lanes and warps run in one order, whichever is asked for.",
        "runtime/scheduler.cpp",
        "order[i] = block_order == Order::DESCENDING ? count - 1 - i : i;\n"
        "    if (block_order != Order::RANDOM) return;",
        "order[i] = i;\n    return;",
        f"{WARPS}::test_an_atomic_sum_gives_each_thread_its_own_number_in_each_order",
    ),
    fault(
        "some-blocks-twice",
        "A random order of blocks leaves some out and runs others twice.",
        "runtime/launch.cpp",
        "while (greatest_common_divisor(step, count) != 1);",
        "while (step == 1);",
        f"{WARPS}::test_an_atomic_sum_gives_each_thread_its_own_number_in_each_order",
        "tests/cuda/test_cuda_emulator.py::test_each_thread_of_a_grid_of_three_dimensions_runs_once",
    ),
    fault(
        "absent-lanes",
        "A mask may name lanes that the warp has not got.",
        "runtime/faults.cpp",
        "    if (unsigned absent = mask & ~warp.exists) {",
        "    if (unsigned absent = mask & 0) {",
        f"{FAULTED}::test_a_mask_names_lanes_that_the_block_has_not_got",
    ),
    # -- memory --------------------------------------------------------------------------------------------------------
    fault(
        "nobody-looks-around-memory",
        "Bytes before and behind an allocation are not looked at after a launch.",
        "runtime/launch.cpp",
        "    if (!has_fault()) check_canaries();\n",
        "",
        f"{FAULT}[writes_before_the_start]",
    ),
    fault(
        "nobody-looks-around-arrays",
        "Bytes next to shared arrays are not looked at after a block.",
        "runtime/launch.cpp",
        "        if (!has_fault()) check_shared_memory();\n",
        "",
        f"{FAULT}[writes_past_a_shared_array]",
    ),
    fault(
        "shared-memory-of-the-block-before",
        "Shared memory is not made NaN again before each block.",
        "runtime/launch.cpp",
        "        poison_shared_memory();\n",
        "        if (place == 0) poison_shared_memory();\n",
        f"{FAULTED}::test_what_was_not_written_or_has_not_landed_is_nan",
    ),
    fault(
        "memory-begins-at-the-guard",
        "An allocation begins right behind a page that faults, but ends anywhere.",
        "runtime/memory.cpp",
        "    allocation.start = allocation.usable_end() - usable;",
        "    allocation.start = allocation.usable();",
        f"{FAULT}[reads_past_the_end]",
    ),
    fault(
        "pointers-to-anything",
        "A kernel is given a pointer to memory that was freed.",
        "arguments.py",
        "if address and not memory.is_allocated(address):",
        "if False:",
        f"{FAULTED}::test_memory_that_was_freed",
    ),
    fault(
        "shared-variables-known-to-the-compiler",
        "What the compiler sees nobody write is 0 to it, though the emulator made it NaN.",
        "include/language.h",
        "#define __shared__ thread_local __attribute__((used))",
        "#define __shared__ thread_local",
        f"{FAULTED}::test_what_no_thread_ever_writes_is_nan",
    ),
    fault(
        "arrays-without-bounds",
        "Indices of arrays are not checked.",
        "build.py",
        '"alignment,bounds,',
        '"alignment,',
        f"{FAULT}[indexes_past_registers]",
    ),
    # -- asynchronous copies -------------------------------------------------------------------------------------------
    fault(
        "a-group-too-many",
        "A wait lets the group behind the last one land too.",
        "runtime/async_copies.cpp",
        "copies[landed].group < group",
        "copies[landed].group <= group",
        f"{FAULTED}::test_what_was_not_written_or_has_not_landed_is_nan",
    ),
    fault(
        "what-is-not-valid-stays",
        "A copy that is not valid leaves shared memory as it was.",
        "runtime/async_copies.cpp",
        "        memset(copy.shared, 0, copy.bytes);\n",
        "        return;\n",
        f"{FAULTED}::test_what_was_not_written_or_has_not_landed_is_nan",
    ),
    fault(
        "matrix-of-what-is-on-its-way",
        "ldmatrix does not look whether what it reads has landed.",
        "runtime/async_copies.cpp",
        "    if (first != ~0u) return;",
        "    return;",
        f"{FAULT}[loads_a_matrix_before_it_landed]",
    ),
    fault(
        "copies-of-no-group",
        "A wait for all copies says nothing about those that no group has.",
        "runtime/async_copies.cpp",
        "groups_left == 0 && !copies.empty()",
        "groups_left == 0 && copies.empty()",
        f"{FAULT}[waits_for_a_copy_of_no_group]",
    ),
    # -- what is computed ----------------------------------------------------------------------------------------------
    fault(
        "fragments-of-a-swapped",
        "The two middle registers of a product's first operand change places.",
        "runtime/tensor_cores.cpp",
        "&a[group + 8 * (j % 2)][pair + 8 * (j / 2)]",
        "&a[group + 8 * (j / 2)][pair + 8 * (j % 2)]",
        f"{MATRICES}::test_every_lane_of_a_product",
    ),
    fault(
        "sums-of-a-transposed-tile",
        "The sums of a product lie in its registers with rows and columns exchanged.",
        "runtime/tensor_cores.cpp",
        "d[i / 4 + 8 * (j / 2)][i % 4 * 2 + j % 2]",
        "d[i / 4 + 8 * (j % 2)][i % 4 * 2 + j / 2]",
        f"{MATRICES}::test_every_lane_of_a_product",
    ),
    fault(
        "shuffle-across-segments",
        "__shfl_xor_sync reads beyond its segment of the warp.",
        "include/warp.h",
        "return from >= (lane & ~(width - 1)) + width ? lane : from & (WARP - 1);",
        "return from & (WARP - 1);",
        f"{WARPS}::test_shuffles",
    ),
    fault(
        "ties-away-from-even",
        "bf16 is rounded up where it lies in the middle.",
        "include/halves.h",
        "bits + 0x7fff + (bits >> 16 & 1)",
        "bits + 0x8000",
        f"{ROUNDING}[bf16]",
    ),
    fault(
        "nan-becomes-a-number",
        "A NaN with low bits alone is rounded up to infinity, or on to minus zero.",
        "include/halves.h",
        "    if (value != value) return {0x7fff};\n    return {(unsigned short)((",
        "    return {(unsigned short)((",
        f"{ROUNDING}[bf16]",
    ),
    fault(
        "contracted-all-the-same",
        "__fmul_rn and __fadd_rn become a multiply-add.",
        "include/intrinsics.h",
        '        __asm__ volatile("" : "+m"(result));        \\\n',
        "",
        f"{WARPS}::test_products_and_sums_are_contracted_or_not",
    ),
    # -- races ---------------------------------------------------------------------------------------------------------
    fault(
        "any-two-threads-of-a-block-are-ordered",
        "Accesses between the same barriers are taken for ordered.",
        "runtime/races.cpp",
        "    if (earlier.barriers != barriers) return true;",
        "    return true;",
        f"{RACE}[sums_in_a_tree]",
    ),
    fault(
        "blocks-are-ordered",
        "Accesses to global memory by different blocks are taken for ordered.",
        "runtime/races.cpp",
        "    if (earlier.block != block) return is_shared;",
        "    if (earlier.block != block) return true;",
        f"{RACE}[halves_share_no_word]",
    ),
    fault(
        "warp-barriers-order-nothing",
        "__syncwarp orders no accesses, so that right kernels race.",
        "runtime/races.cpp",
        "        for (int i = 0; i < WARP; ++i) clocks[first + lane][i] = known[i];\n",
        "",
        f"{RACE}[reads_its_neighbour]",
    ),
    fault(
        "reads-do-not-race",
        "A write is not compared with the last read.",
        "runtime/races.cpp",
        "{byte.read, byte.other_read}",
        "{byte.other_read, byte.other_read}",
        f"{RACE}[one_reads_and_another_writes]",
    ),
    fault(
        "one-read-is-remembered",
        "Of two reads of a byte by different threads, a write is compared with the last one alone.",
        "runtime/races.cpp",
        "        if (byte.read.instruction && byte.read.thread != access.thread) byte.other_read = byte.read;\n",
        "",
        f"{RACE}[both_read_and_one_writes]",
    ),
    fault(
        "atomic-with-anything",
        "An atomic operation does not race with a plain write.",
        "runtime/races.cpp",
        "!(is_atomic && byte.write.is_atomic)",
        "!(is_atomic || byte.write.is_atomic)",
        f"{RACE}[counts_in_all_blocks]",
    ),
    fault(
        "between-arrays",
        "Bytes between arrays of shared memory may be read.",
        "runtime/accesses.cpp",
        " && !is_around_shared_array(address)",
        "",
        BOUNDS,
    ),
    # -- the process ---------------------------------------------------------------------------------------------------
    fault(
        "denormals-of-whoever-launches",
        "A kernel flushes denormals where the thread that launches it does.",
        "runtime/launch.cpp",
        "        fesetenv(FE_DFL_ENV);\n",
        "",
        f"{PROCESS}::test_denormals_are_kept_whatever_the_thread_has_set",
    ),
    fault(
        "handlers-stay",
        "The process's own signal handlers do not come back after a launch.",
        "runtime/signals.cpp",
        "    for (int signal : FAULTS) sigaction(signal, &previous[signal], nullptr);\n",
        "",
        f"{PROCESS}::test_the_same_signals_are_caught_before_and_after_a_launch",
    ),
)

"""Launches in the emulator with numpy arrays: each is copied in before, and copied back after."""

from euler_ir.backends.cuda.emulator import build


def launch(source, kernel, blocks, threads, *arguments, contract=True, sanitize=False, **options):
    """Runs ``kernel``, compiled unless it was; arrays among the arguments hold what the kernel left in them."""
    build.load(source, contract=contract, sanitize=sanitize).run(kernel, blocks, threads, *arguments, **options)

"""The commands of ``euler-ir``, a module each: ``configure(parser)`` says its options, ``run(options)`` does it.

Only the module of the command that is called is imported, so that each starts as fast as what it needs.
"""

COMMANDS = {
    "dump": "print what the compiler makes of a model, stage by stage",
    "opt": "run passes on a graph, all or some, and print what comes out",
    "run": "run a graph, a fused graph or kernels, from Python or from edited text",
    "stages": "say what each pass takes and makes, down to the plan",
    "explain": "say everything about one value: line, passes, loops, memory, cost",
    "fusion": "say for every edge whether it is fused, why not, what that costs and what would lift it",
    "why-not": "say why a rewrite rule is not applied to a value",
    "memory": "say what a step keeps in memory and when, whose it is, and why not less",
    "where": "trace one element of a parameter to the machine: memory, loops, threads and lanes",
    "compare": "say which value of which stage is the first that rounding does not explain",
    "bisect": "find the one rewrite, or kernel, that makes a result wrong",
    "reduce": "shrink a graph that fails to a small one that fails in the same way",
    "nans": "say where the first NaN comes from, and how it reaches a result",
    "profile": "time every kernel and product of a step, beside what the machine could do",
    "kernel": "list the kernels, show one as Loop IR, LLVM IR, assembly or CUDA, replace it by an edited one",
    "resources": "say what each CUDA kernel of a step takes of a GPU, how much it moves, and what is launched",
    "explore": "write a page that lays the whole step open, from your lines to the machine code",
    "check": "compare the gradient of every operator with finite differences",
    "passes": "list the passes, presets and rules that a pipeline may name",
    "ops": "list the operators of the graph and what they mean",
    "cache": "say what is kept on disk, or remove it",
}
"""Every command with its one line of help, in the order in which they are listed."""

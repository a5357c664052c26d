// Package pickle reads Python pickles as data. It is a reader of the instruction set of protocols 2 to 5, without an
// interpreter behind it: an instruction that would import or call something is refused unless the host, by name, says
// what value stands for it. Nothing of a pickle is ever executed.
//
// Memory and time are bounded: by the input's size, the number of instructions and the depth of nesting (see
// [Limits]). References: CPython's Lib/pickletools.py, PEP 307, 3154 and 574.
package pickle

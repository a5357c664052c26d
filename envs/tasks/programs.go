package tasks

import (
	"fmt"
	"io/fs"
	"strings"
)

// The families of programs that are mended or written.

func fixOperator(d dice) made {
	ops := []struct{ sign, noun string }{{"+", "sum"}, {"-", "difference"}, {"*", "product"}, {"//", "quotient"}}
	right := d.IntN(len(ops))
	wrong := (right + 1 + d.IntN(len(ops)-1)) % len(ops)
	module, function := d.word(), d.word()
	a, b := d.number(20, 90), d.number(3, 9)
	results := []int{a + b, a - b, a * b, a / b}
	return made{
		instruction: fmt.Sprintf("The function %s in %s.py is to return the %s of a and b (a %s b). test_%s.py fails. "+
			"Mend %s.py.", function, module, ops[right].noun, ops[right].sign, module, module),
		files: map[string]string{
			module + ".py": fmt.Sprintf("def %s(a, b):\n    return a %s b\n", function, ops[wrong].sign),
			"test_" + module + ".py": fmt.Sprintf("from %s import %s\n\nassert %s(%d, %d) == %d\n", module, function,
				function, a, b, results[right]),
		},
		tests: fmt.Sprintf(`def test_own():
    sh("python3 test_%[1]s.py")
def test_other():
    same(sh("python3 -c 'from %[1]s import %[2]s; print(%[2]s(%[3]d, 2))'"), %[4]q)
`, module, function, 2*b+60, fmt.Sprint([]int{2*b + 62, 2*b + 58, 4*b + 120, b + 30}[right])),
		solution: fmt.Sprintf("sed -i 's|a %s b|a %s b|' %s.py", strings.ReplaceAll(ops[wrong].sign, "*", "[*]"),
			ops[right].sign, module),
	}
}

func fixLoop(d dice) made {
	module, function, n, power := d.word(), d.word(), d.number(4, 12), d.number(1, 3)
	sum := func(n int) (total int) {
		for i := 1; i <= n; i++ {
			term := 1
			for range power {
				term *= i
			}
			total += term
		}
		return total
	}
	bug, right := d.of("range(1, n)", "range(2, n + 1)", "range(1, n - 1)"), "range(1, n + 1)"
	return made{
		instruction: fmt.Sprintf("%s(n) in %s.py is to add i ** %d for every i from 1 to n, n included. It leaves some "+
			"out. Mend it.", function, module, power),
		files: map[string]string{module + ".py": fmt.Sprintf("def %s(n):\n    total = 0\n    for i in %s:\n        "+
			"total += i ** %d\n    return total\n", function, bug, power)},
		tests: fmt.Sprintf(`def test_small():
    same(sh("python3 -c 'from %[1]s import %[2]s; print(%[2]s(2))'"), %[3]q)
def test_large():
    same(sh("python3 -c 'from %[1]s import %[2]s; print(%[2]s(%[4]d))'"), %[5]q)
`, module, function, fmt.Sprint(sum(2)), n, fmt.Sprint(sum(n))),
		solution: fmt.Sprintf("sed -i 's/%s/%s/' %s.py", bug, right, module),
	}
}

func renameFunction(d dice) made {
	names := d.some(4)
	old, now, module, user, n := names[0], names[1], names[2], names[3], d.number(2, 99)
	return made{
		instruction: fmt.Sprintf("Rename the function %s to %s everywhere in %s.py and %s.py. `python3 %s.py` must print "+
			"the same as before.", old, now, module, user, user),
		files: map[string]string{
			module + ".py": fmt.Sprintf("def %s(x):\n    return x + %d\n", old, n),
			user + ".py":   fmt.Sprintf("from %s import %s\n\nprint(%s(1))\n", module, old, old),
		},
		tests: fmt.Sprintf(`def test_runs():
    same(sh("python3 %[1]s.py"), %[2]q)
def test_renamed():
    sh("python3 -c 'from %[3]s import %[4]s'")
def test_gone():
    assert %[5]q not in read("%[3]s.py") + read("%[1]s.py")
`, user, fmt.Sprint(n+1), module, now, old),
		solution: fmt.Sprintf("sed -i 's/%s/%s/g' %s.py %s.py", old, now, module, user),
	}
}

func fixMakefile(d dice) made {
	names := d.some(3)
	source, target, wrong := names[0]+".txt", names[1]+".txt", names[2]+".txt"
	list := d.some(4)
	recipe, bug := "\tsort "+source+" > "+target, "\tsort "+wrong+" > "+target
	if d.IntN(2) == 0 {
		bug = "        sort " + source + " > " + target // no tab
	}
	return made{
		instruction: fmt.Sprintf("`make` is to write the sorted lines of %s to %s, and fails. Repair the Makefile.", source,
			target),
		files: map[string]string{
			source: lines(list...), "Makefile": fmt.Sprintf("%s: %s\n%s\n", target, source, bug),
		},
		tests: fmt.Sprintf(`def test_make():
    sh("rm -f %[1]s; make")
    same(read(%[1]q).split(), sorted(%[2]q.split()))
def test_follows():
    sh("echo aaa >> %[3]s; touch -d 2001-01-01 %[1]s; make")
    same(read(%[1]q).split()[0], "aaa")
`, target, strings.Join(list, " "), source),
		solution: fmt.Sprintf(`printf '%s: %s\n\t%s\n' > Makefile`, target, source, strings.TrimSpace(recipe)),
	}
}

func fixScript(d dice) made {
	name, greeting, who := d.word()+".sh", d.of("hello", "welcome", "goodbye"), d.word()
	bug, modes := "#!/bin/bsh", map[string]fs.FileMode(nil)
	if d.IntN(2) == 0 {
		bug = "#!/usr/bin/python3"
	}
	if d.IntN(2) == 0 {
		modes = map[string]fs.FileMode{name: 0o755}
	}
	return made{
		instruction: fmt.Sprintf("./%s is to print %q with its argument, and does not start. Make it run.", name,
			greeting+" "+who),
		files: map[string]string{name: fmt.Sprintf("%s\necho \"%s $1\"\n", bug, greeting)}, modes: modes,
		tests: fmt.Sprintf(`def test_runs():
    same(sh("./%[1]s %[2]s"), "%[3]s %[2]s")
`, name, who, greeting),
		solution: fmt.Sprintf("sed -i '1s/.*/#!\\/bin\\/sh/' %s; chmod +x %s", name, name),
	}
}

func writeScript(d dice) made {
	name, factor := d.word()+".sh", d.number(2, 12)
	a, b, c := d.number(1, 50), d.number(1, 50), d.number(1, 50)
	return made{
		instruction: fmt.Sprintf("Write a shell script %s that prints %d times the sum of its arguments: `bash %s %d %d` "+
			"prints %d.", name, factor, name, a, b, factor*(a+b)),
		tests: fmt.Sprintf(`def test_two():
    same(sh("bash %[1]s %[2]d %[3]d"), "%[4]d")
def test_three():
    same(sh("bash %[1]s %[2]d %[3]d %[5]d"), "%[6]d")
def test_none():
    same(sh("bash %[1]s"), "0")
`, name, a, b, factor*(a+b), c, factor*(a+b+c)),
		solution: fmt.Sprintf(`echo 't=0; for i; do t=$((t+i)); done; echo $((t*%d))' > %s`, factor, name),
	}
}

func writeRegex(d dice) made {
	letters, digits := d.number(1, 4), d.number(2, 5)
	separator := d.of("-", "_", ":", "/")
	code := func(letters, digits int) string {
		text := ""
		for range letters {
			text += string(rune('A' + d.IntN(26)))
		}
		text += separator
		for range digits {
			text += string(rune('0' + d.IntN(10)))
		}
		return text
	}
	good := []string{code(letters, digits), code(letters, digits), code(letters, digits)}
	bad := []string{code(letters+1, digits), code(letters, digits+1), code(letters, digits-1), "x" + good[0],
		strings.ToLower(good[0]), strings.Replace(good[1], separator, "", 1)}
	return made{
		instruction: fmt.Sprintf("Codes have %d capital letters, then %s, then %d digits, as %s. Write an extended regular "+
			"expression to pattern.txt, with which `grep -xEf pattern.txt` prints those lines that are codes.", letters,
			separator, digits, good[0]),
		files: map[string]string{"examples.txt": lines(good[0], bad[0])},
		tests: fmt.Sprintf(`def matching(text):
    with open("/tmp/codes", "w") as file:
        file.write(text)
    return sh("grep -xEf pattern.txt /tmp/codes || true").split()
def test_codes():
    same(matching(%[1]q), %[1]q.split())
def test_others():
    same(matching(%[2]q + "A\n" + %[1]q), %[1]q.split())
`, lines(good...), lines(bad...)),
		solution: fmt.Sprintf("echo '[A-Z]{%d}%s[0-9]{%d}' > pattern.txt", letters, separator, digits),
	}
}

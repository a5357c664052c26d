package tasks

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"
)

// The families of files and folders.

func replaceText(d dice) made {
	names := d.some(6)
	old, now := names[0], names[1]
	files, tests := map[string]string{}, ""
	for i, name := range names[2:] {
		text := lines(d.word()+" "+old+" end", d.of(old, d.word()), old+old)
		file := name + d.of(".txt", ".md")
		files[file] = text
		tests += fmt.Sprintf("def test_%d():\n    same(read(%q), %q)\n", i, file, strings.ReplaceAll(text, old, now))
	}
	return made{
		instruction: fmt.Sprintf("Replace %s by %s everywhere in all files here.", old, now),
		files:       files, tests: tests,
		solution: fmt.Sprintf("sed -i 's/%s/%s/g' *.txt *.md 2>/dev/null; true", old, now),
	}
}

func renameFiles(d dice) made {
	from, to := d.of("txt", "log", "dat"), d.of("md", "bak", "old")
	files, tests := map[string]string{}, ""
	for i, name := range d.some(d.number(2, 5)) {
		files[name+"."+from] = fmt.Sprintln(d.number(1, 1000))
		tests += fmt.Sprintf("def test_%[1]d():\n    same(read(\"%[2]s.%[3]s\"), %[4]q)\n    assert not os.path.exists("+
			"\"/app/%[2]s.%[5]s\")\n", i, name, to, files[name+"."+from], from)
	}
	return made{
		instruction: fmt.Sprintf("Rename every file *.%s to *.%s.", from, to),
		files:       files, tests: tests,
		solution: fmt.Sprintf("for f in *.%s; do mv $f ${f%%%s}%s; done", from, from, to),
	}
}

func findFile(d dice) made {
	names, needle := d.some(6), fmt.Sprintf("key-%d", d.number(10000, 99999))
	files, where := map[string]string{}, ""
	at := d.IntN(5)
	for i, name := range names[1:] {
		file := path.Join(d.of(names...), d.of(names[0], "."), name+".txt")
		files[file] = lines(d.word(), fmt.Sprintf("key-%d", d.number(1000, 9999)))
		if i == at {
			files[file] += needle + "\n"
			where = file
		}
	}
	return made{
		instruction: fmt.Sprintf("One file below this folder contains %s. Write its path, from this folder on and without "+
			"./, to answer.txt.", needle),
		files:    files,
		tests:    says("answer.txt", where),
		solution: fmt.Sprintf("grep -rl --exclude=answer.txt %s * > answer.txt", needle),
	}
}

func largestFile(d dice) made {
	names := d.some(5)
	files, sizes, want := map[string]string{}, d.Perm(60), d.of("largest", "smallest")
	best := 0
	for i, name := range names {
		files[name+".bin"] = strings.Repeat("x", sizes[i]*10+1)
		if want == "largest" && sizes[i] > sizes[best] || want == "smallest" && sizes[i] < sizes[best] {
			best = i
		}
	}
	flag := map[string]string{"largest": "-S", "smallest": "-Sr"}[want]
	return made{
		instruction: fmt.Sprintf("Write the name of the %s of the files *.bin to answer.txt.", want),
		files:       files,
		tests:       says("answer.txt", names[best]+".bin"),
		solution:    fmt.Sprintf("ls %s *.bin | head -1 > answer.txt", flag),
	}
}

func makeFolders(d dice) made {
	names, count := d.some(3), d.number(2, 6)
	tests := ""
	for i := 1; i <= count; i++ {
		tests += fmt.Sprintf("def test_%[1]d():\n    same(read(\"%[2]s/%[3]s%[1]d/%[4]s.txt\").strip(), \"%[1]d\")\n", i,
			names[0], names[1], names[2])
	}
	return made{
		instruction: fmt.Sprintf("Make the folders %[1]s/%[2]s1 to %[1]s/%[2]s%[4]d, and in each a file %[3]s.txt that "+
			"holds the folder's number.", names[0], names[1], names[2], count),
		tests: tests,
		solution: fmt.Sprintf("for i in $(seq %d); do mkdir -p %s/%s$i; echo $i > %s/%s$i/%s.txt; done", count, names[0],
			names[1], names[0], names[1], names[2]),
	}
}

func checksum(d dice) made {
	names := d.some(4)
	text, file := strings.Join(d.some(6), " ")+"\n", names[0]+".txt"
	files := map[string]string{file: text}
	for _, other := range names[1:] {
		files[other+".txt"] = other + "\n"
	}
	return made{
		instruction: fmt.Sprintf("Write the SHA-256 checksum of %s, 64 hexadecimal digits and nothing else, to answer.txt.",
			file),
		files:    files,
		tests:    says("answer.txt", fmt.Sprintf("%x", sha256.Sum256([]byte(text)))),
		solution: fmt.Sprintf("sha256sum %s | cut -d' ' -f1 > answer.txt", file),
	}
}

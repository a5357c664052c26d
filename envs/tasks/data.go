package tasks

import (
	"fmt"
	"slices"
	"strings"
)

// The families of data that are asked or changed.

func querySQLite(d dice) made {
	table, people := d.of("orders", "sales", "visits"), d.some(4)
	dump := fmt.Sprintf("CREATE TABLE %s (who TEXT, amount INTEGER);\n", table)
	totals := map[string]int{}
	for range d.number(8, 16) {
		who, amount := d.of(people...), d.number(1, 99)
		totals[who] += amount
		dump += fmt.Sprintf("INSERT INTO %s VALUES ('%s', %d);\n", table, who, amount)
	}
	who := d.of(people...)
	query := fmt.Sprintf("SELECT coalesce(sum(amount), 0) FROM %s WHERE who = '%s'", table, who)
	return made{
		instruction: fmt.Sprintf("dump.sql makes an SQLite database with the table %s (who, amount). Load it into data.db "+
			"and write the sum of amount for %s to answer.txt.", table, who),
		files: map[string]string{"dump.sql": dump},
		tests: says("answer.txt", totals[who]) + fmt.Sprintf(`def test_database():
    import sqlite3
    same(sqlite3.connect("/app/data.db").execute(%q).fetchone()[0], %d)
`, query, totals[who]),
		solution: fmt.Sprintf(`python3 -c "import sqlite3; c = sqlite3.connect('data.db'); `+
			`c.executescript(open('dump.sql').read()); print(c.execute(\"%s\").fetchone()[0])" > answer.txt`, query),
	}
}

func sumCSV(d dice) made {
	keys, total := d.some(3), 0
	which, file := keys[0], d.word()+".csv"
	text := "name,kind,count\n"
	for i := range d.number(6, 14) {
		kind, count := d.of(keys...), d.number(1, 500)
		if i == 0 {
			kind = which
		}
		if kind == which {
			total += count
		}
		text += fmt.Sprintf("%s,%s,%d\n", d.word(), kind, count)
	}
	return made{
		instruction: fmt.Sprintf("Write the sum of the column count of %s, over the rows whose kind is %s, to answer.txt.",
			file, which),
		files:    map[string]string{file: text},
		tests:    says("answer.txt", total),
		solution: fmt.Sprintf("awk -F, '$2 == \"%s\" { t += $3 } END { print t }' %s > answer.txt", which, file),
	}
}

func countLog(d dice) made {
	level, service := d.of("ERROR", "WARN", "FATAL"), d.word()
	text, count := "", 0
	for range d.number(20, 60) {
		l, s := d.of("ERROR", "WARN", "FATAL", "INFO"), d.of(service, d.word())
		if l == level && s == service {
			count++
		}
		text += fmt.Sprintf("12:%02d %s [%s] %s\n", d.IntN(60), l, s, d.of("ERROR seen before", "no WARN", "ready"))
	}
	return made{
		instruction: fmt.Sprintf("Count the lines of app.log whose level, the second word, is %s and whose service is "+
			"[%s]. Write the number to answer.txt.", level, service),
		files:    map[string]string{"app.log": text},
		tests:    says("answer.txt", count),
		solution: fmt.Sprintf("grep -c '^[0-9:]* %s \\[%s\\]' app.log > answer.txt", level, service),
	}
}

func setJSON(d dice) made {
	keys, value := d.some(4), d.number(1000, 9999)
	return made{
		instruction: fmt.Sprintf("In config.json set %s, under %s, to the number %d. Leave the rest as it is.", keys[1],
			keys[0], value),
		files: map[string]string{"config.json": fmt.Sprintf("{\n  %q: {%q: %d, %q: true},\n  %q: [1, 2]\n}\n", keys[0],
			keys[1], d.number(1, 999), keys[2], keys[3])},
		tests: fmt.Sprintf(`def test_json():
    same(json.loads(read("config.json")), {%[1]q: {%[2]q: %[3]d, %[4]q: True}, %[5]q: [1, 2]})
`, keys[0], keys[1], value, keys[2], keys[3]),
		solution: fmt.Sprintf(`sed -i 's/"%s": [0-9]*/"%s": %d/' config.json`, keys[1], keys[1], value),
	}
}

func swapColumns(d dice) made {
	file, given, wanted := d.word()+".txt", "", ""
	first, second := 1, 2
	if d.IntN(2) == 0 {
		second = 3
	}
	for range d.number(3, 8) {
		row := []string{d.word(), fmt.Sprint(d.number(1, 99)), d.word()}
		given += strings.Join(row, " ") + "\n"
		row[first-1], row[second-1] = row[second-1], row[first-1]
		wanted += strings.Join(row, " ") + "\n"
	}
	return made{
		instruction: fmt.Sprintf("Each line of %s has three words. Exchange the words %d and %d of every line, in the file.",
			file, first, second),
		files: map[string]string{file: given + "a b b\n"},
		tests: fmt.Sprintf("def test_file():\n    same(read(%q), %q)\n", file, wanted+map[int]string{
			2: "b a b\n", 3: "b b a\n"}[second]),
		solution: fmt.Sprintf("awk '{ t = $%[1]d; $%[1]d = $%[2]d; $%[2]d = t; print }' %[3]s > t; mv t %[3]s", first,
			second, file),
	}
}

func uniqueWords(d dice) made {
	list, file := d.some(d.number(3, 7)), d.word()+".txt"
	text := slices.Concat(list, list[:2])
	d.Shuffle(len(text), func(i, j int) { text[i], text[j] = text[j], text[i] })
	slices.Sort(list)
	out, flag := "unique.txt", ""
	if d.IntN(2) == 0 {
		slices.Reverse(list)
		flag = "r"
	}
	return made{
		instruction: fmt.Sprintf("Write the different lines of %s, each once, to %s, in %s order.", file, out,
			map[string]string{"": "alphabetical", "r": "reverse alphabetical"}[flag]),
		files:    map[string]string{file: lines(text...)},
		tests:    fmt.Sprintf("def test_file():\n    same(read(%q), %q)\n", out, lines(list...)),
		solution: fmt.Sprintf("sort -u%s %s > %s", flag, file, out),
	}
}

func decodeText(d dice) made {
	secret := strings.Join(d.some(d.number(2, 5)), " ")
	how := d.IntN(2)
	encoded := []string{fmt.Sprintf("%x", secret), strings.Map(func(r rune) rune {
		if r == ' ' {
			return r
		}
		return 'a' + (r-'a'+13)%26
	}, secret)}[how]
	return made{
		instruction: fmt.Sprintf("message.txt holds a text %s. Write the text itself to answer.txt.",
			[]string{"in hexadecimal digits", "in ROT13"}[how]),
		files: map[string]string{"message.txt": encoded + "\n"},
		tests: says("answer.txt", secret),
		solution: []string{`python3 -c "print(bytes.fromhex(open('message.txt').read().strip()).decode())" > answer.txt`,
			"tr a-z n-za-m < message.txt > answer.txt"}[how],
	}
}
